use std::{any::TypeId, fmt, sync::Arc};

use evento_core::{CheckpointMode, ComponentDescriptor, ConsumerKey, Erased, Kind, store::OpenStore};

use super::{BundleBuilder, validation::Accepted};
use crate::{ConsumerExecutor, Interceptor, Settings, clock::Clock, fault::Classifiers};

/// A bundle that has passed every check, and has touched nothing yet.
pub(crate) struct Prepared {
    pub(crate) name: String,
    pub(crate) settings: Settings,
    pub(crate) store: Arc<dyn OpenStore>,
    /// Sorted by kind, name and context.
    pub(crate) consumers: Vec<ConsumerSpec>,
    pub(crate) executors: Vec<ConsumerExecutor>,
    pub(crate) interceptors: Arc<[Arc<dyn Interceptor>]>,
    pub(crate) classifiers: Classifiers,
    pub(crate) warnings: Vec<String>,
    pub(crate) clock: Clock,
}

/// One consumer to run: a component in one context.
#[derive(Clone)]
pub(crate) struct ConsumerSpec {
    pub(crate) key: Arc<ConsumerKey>,
    pub(crate) component: ComponentDescriptor,
    pub(crate) instance: Arc<Erased>,
    pub(crate) mode: CheckpointMode,
    /// The event names it takes; sorted.
    pub(crate) names: Vec<String>,
}

impl Prepared {
    pub(super) fn new(builder: BundleBuilder, accepted: Accepted) -> Self {
        let Accepted { store, executors, warnings } = accepted;
        let mut consumers = Vec::new();
        for provided in &builder.provided {
            for context in &builder.contexts {
                consumers.push(ConsumerSpec {
                    key: Arc::new(consumer_key(&builder.name, &provided.component, context)),
                    component: provided.component,
                    instance: Arc::clone(&provided.instance),
                    mode: mode_of(&builder, &provided.component),
                    names: names_of(&provided.component),
                });
            }
        }
        consumers.sort_by(|a, b| a.key.cmp(&b.key));
        Self {
            name: builder.name,
            settings: builder.settings,
            store,
            consumers,
            executors,
            interceptors: builder.interceptors.into(),
            classifiers: Classifiers::new(builder.classifiers, builder.faulty),
            warnings,
            clock: builder.clock.unwrap_or_else(Clock::system),
        }
    }
}

/// What a component's checkpoints record: the settings, the bundle's override, the component's own word, the bundle's
/// mode, in this order; else starts, where a handler runs in parallel.
pub(super) fn mode_of(builder: &BundleBuilder, component: &ComponentDescriptor) -> CheckpointMode {
    let type_id: TypeId = (component.type_id)();
    let set = builder.settings.components.get(component.name).and_then(|settings| settings.checkpoint);
    let overridden = || builder.overrides.iter().rev().find(|given| given.is_of(type_id)).map(|given| given.mode);
    let parallel = component.handlers.iter().any(|handler| handler.executor.is_some());
    let default = if parallel { CheckpointMode::OnStart } else { CheckpointMode::Watermark };
    set.or_else(overridden).or(component.checkpoint).or(builder.mode).unwrap_or(default)
}

fn consumer_key(bundle: &str, component: &ComponentDescriptor, context: &str) -> ConsumerKey {
    ConsumerKey {
        bundle: bundle.to_owned(),
        kind: component.kind,
        name: component.name.to_owned(),
        version: match component.kind {
            Kind::Projector => component.version,
            _ => 0,
        },
        context: context.to_owned(),
    }
}

fn names_of(component: &ComponentDescriptor) -> Vec<String> {
    let mut names: Vec<_> = component.handlers.iter().map(|handler| handler.event.name.to_owned()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared")
            .field("name", &self.name)
            .field("store", &self.store)
            .field("consumers", &self.consumers)
            .field("executors", &self.executors)
            .field("warnings", &self.warnings)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ConsumerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsumerSpec")
            .field("key", &format_args!("{}", self.key))
            .field("mode", &self.mode)
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}
