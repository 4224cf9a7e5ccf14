use std::{any::TypeId, fmt, sync::Arc};

use evento_core::{
    CheckpointMode, ComponentDescriptor, DEFAULT_CONTEXT, Erased, Fault, Faulty, Handlers, IntoInstance, Location,
    plan::Plan, store::OpenStore,
};

use super::{Prepared, StartError, validation};
use crate::{
    ConsumerExecutor, Interceptor, Settings,
    clock::Clock,
    executor::caller,
    fault::{Ask, Classify, ask},
};

/// Collects what a bundle consists of.
///
/// Nothing is checked, opened or started before the start; then everything that is wrong is reported at once.
#[must_use = "a bundle does nothing until it is started"]
pub struct BundleBuilder {
    pub(super) name: String,
    pub(super) plans: Vec<Plan>,
    pub(super) stores: Vec<Arc<dyn OpenStore>>,
    pub(super) executors: Vec<ConsumerExecutor>,
    pub(super) mode: Option<CheckpointMode>,
    pub(super) overrides: Vec<Override>,
    pub(super) provided: Vec<Provided>,
    pub(super) only_provided: bool,
    pub(super) contexts: Vec<String>,
    pub(super) interceptors: Vec<Arc<dyn Interceptor>>,
    pub(super) classifiers: Vec<Classify>,
    pub(super) faulty: Vec<Ask>,
    pub(super) settings: Settings,
    pub(super) clock: Option<Clock>,
}

/// A checkpoint mode given to one component.
#[derive(Debug)]
pub(super) struct Override {
    pub(super) component: ComponentDescriptor,
    pub(super) mode: CheckpointMode,
    pub(super) location: Location,
}

impl Override {
    pub(super) fn is_of(&self, type_id: TypeId) -> bool {
        (self.component.type_id)() == type_id
    }
}

/// An instance, and where it was given.
pub(super) struct Provided {
    pub(super) component: ComponentDescriptor,
    pub(super) instance: Arc<Erased>,
    pub(super) location: Location,
}

impl BundleBuilder {
    pub(super) fn new(name: String) -> Self {
        Self {
            name,
            plans: Vec::new(),
            stores: Vec::new(),
            executors: Vec::new(),
            mode: None,
            overrides: Vec::new(),
            provided: Vec::new(),
            only_provided: false,
            contexts: vec![DEFAULT_CONTEXT.to_owned()],
            interceptors: Vec::new(),
            classifiers: Vec::new(),
            faulty: Vec::new(),
            settings: Settings::default(),
            clock: None,
        }
    }

    /// Holds the bundle to a plan: any difference between it and what the builder is given is refused.
    ///
    /// Several plans count as one.
    pub fn plan(mut self, plan: &Plan) -> Self {
        self.plans.push(*plan);
        self
    }

    /// Describes the store: it is opened by the start, after every check has passed.
    pub fn store(mut self, store: impl OpenStore) -> Self {
        self.stores.push(Arc::new(store));
        self
    }

    /// Registers an executor, for the handlers that name it.
    pub fn executor(mut self, executor: ConsumerExecutor) -> Self {
        self.executors.push(executor);
        self
    }

    /// Sets what checkpoints record, for every component that says nothing of its own.
    ///
    /// Without it, components with a handler under an executor take [`CheckpointMode::OnStart`], others
    /// [`CheckpointMode::Watermark`].
    pub fn checkpoint_mode(mut self, mode: CheckpointMode) -> Self {
        self.mode = Some(mode);
        self
    }

    /// Sets what the checkpoints of one component record. It goes before the component's own `checkpoint`; only the
    /// settings go before it.
    #[track_caller]
    pub fn component_checkpoint_mode<T: Handlers>(mut self, mode: CheckpointMode) -> Self {
        self.overrides.push(Override { component: ComponentDescriptor::of::<T>(), mode, location: caller() });
        self
    }

    /// Gives the instance of a component: the component itself, or an [`Arc`] of it.
    ///
    /// Every linked component needs one, unless the bundle is made of [only those provided](Self::only_provided).
    #[track_caller]
    pub fn provide<I: IntoInstance>(mut self, instance: I) -> Self {
        self.provided.push(Provided {
            component: ComponentDescriptor::of::<I::Component>(),
            instance: instance.into_instance(),
            location: caller(),
        });
        self
    }

    /// Makes the bundle of the provided components alone, whatever else is linked into the binary: for tests, and for
    /// processes that run a part.
    pub fn only_provided(mut self) -> Self {
        self.only_provided = true;
        self
    }

    /// Sets the contexts whose events are consumed; each component has one consumer in each. Just `default` without it.
    pub fn contexts<C: Into<String>>(mut self, contexts: impl IntoIterator<Item = C>) -> Self {
        self.contexts = contexts.into_iter().map(Into::into).collect();
        self
    }

    /// Puts an interceptor around every attempt, inside those registered before it.
    pub fn interceptor(mut self, interceptor: impl Interceptor) -> Self {
        self.interceptors.push(Arc::new(interceptor));
        self
    }

    /// Asks every `E` in a failure's chain what it says about trying again.
    pub fn classify<E: Faulty>(mut self) -> Self {
        self.faulty.push(ask::<E>);
        self
    }

    /// Asks `classifier` about every failure, before anyone else; `None` passes the question on.
    pub fn classifier(mut self, classifier: impl Fn(&anyhow::Error) -> Option<Fault> + Send + Sync + 'static) -> Self {
        self.classifiers.push(Arc::new(classifier));
        self
    }

    /// Sets what a deployment may set, all of it: settings given before are replaced.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Runs the bundle by another clock than the system's.
    pub(crate) fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Checks everything that can be checked before anything is opened.
    ///
    /// # Errors
    /// [`StartError::Refused`] with every problem there is.
    pub(crate) fn prepare(self) -> Result<Prepared, StartError> {
        self.prepare_among(&evento_core::linked())
    }

    /// The same, with the components that count as linked.
    pub(super) fn prepare_among(self, linked: &[&ComponentDescriptor]) -> Result<Prepared, StartError> {
        let accepted = validation::validate(&self, linked)?;
        Ok(Prepared::new(self, accepted))
    }
}

impl fmt::Debug for BundleBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let provided: Vec<_> = self.provided.iter().map(|provided| provided.component.name).collect();
        f.debug_struct("BundleBuilder")
            .field("name", &self.name)
            .field("plans", &self.plans)
            .field("stores", &self.stores)
            .field("executors", &self.executors)
            .field("provided", &provided)
            .field("only_provided", &self.only_provided)
            .field("contexts", &self.contexts)
            .field("interceptors", &self.interceptors.len())
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
