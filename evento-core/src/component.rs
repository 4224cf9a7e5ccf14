use std::{any::TypeId, fmt, sync::Arc};

use crate::HandlerDescriptor;

/// A struct that carries a component attribute.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not declared as a component",
    label = "missing the component attribute on the struct",
    note = "put it on the struct too, for example `#[projector(version = 1)]`"
)]
pub trait Component: Send + Sync + 'static {
    /// What sort of component.
    const KIND: Kind;
    /// Its name.
    const NAME: &'static str;
    /// Its version, from 1.
    const VERSION: u32;
    /// Where it begins at first sight.
    const START: StartAt;
    /// What becomes of events behind a dead one.
    const ON_DEAD: OnDead;
    /// What a transient failure costs where the checkpoint has passed the event.
    const TRANSIENT: OnTransient;
    /// Its own checkpoint mode.
    const CHECKPOINT: Option<CheckpointMode>;
    /// Where the struct is written.
    const LOCATION: Location;
}

/// A component whose impl block carries the attribute too.
pub trait Handlers: Component {
    /// Its handlers, in the order they are written.
    const HANDLERS: &'static [HandlerDescriptor];
}

impl<T: Component + has_handlers> Handlers for T {
    const HANDLERS: &'static [HandlerDescriptor] = <T as has_handlers>::HANDLERS;
}

/// What the attribute on the impl block implements; no supertrait, so that a struct without attribute is one error.
#[expect(non_camel_case_types, reason = "compiler messages read `has_handlers`")]
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no handlers",
    label = "no annotated `impl` block found for this component",
    note = "put the struct's attribute, bare, on the impl block that holds its `#[event_handler]` methods"
)]
pub trait has_handlers {
    /// See [`Handlers::HANDLERS`].
    const HANDLERS: &'static [HandlerDescriptor];
}

/// One handler a component and event: a second impl does not compile.
pub trait HandlesEvent<E> {}

/// Holds of structs that `#[projector]` is on.
#[expect(non_camel_case_types, reason = "compiler messages read `is_projector`")]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not declared as a projector",
    label = "its impl block says `#[projector]`, its struct does not",
    note = "put `#[projector(version = 1)]` on the struct, or the struct's own attribute on this impl block"
)]
pub trait is_projector {}

/// What a bundle can be given as a component's instance: the component, or an [`Arc`] of it.
pub trait IntoInstance {
    /// The component.
    type Component: Handlers;
    /// Shares the instance.
    fn into_instance(self) -> Arc<Self::Component>;
}

impl<T: Handlers> IntoInstance for T {
    type Component = T;

    fn into_instance(self) -> Arc<T> {
        Arc::new(self)
    }
}

impl<T: Handlers> IntoInstance for Arc<T> {
    type Component = T;

    fn into_instance(self) -> Self {
        self
    }
}

/// What sort of component.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Kind {
    /// Keeps a read model up to date.
    Projector,
}

impl Kind {
    /// The word used in attributes, tables and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Projector => "projector",
        }
    }

    /// The kind that [`Kind::as_str`] names so.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Projector].into_iter().find(|kind| kind.as_str() == name)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A place in the application's source.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Location {
    /// The file, as the compiler names it.
    pub file: &'static str,
    /// The line, from 1.
    pub line: u32,
    /// The module.
    pub module: &'static str,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// Where a consumer begins that has no stored state yet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StartAt {
    /// Before the first event: `start = "beginning"`, the default of a projector.
    Beginning,
    /// After the last event there is now: `start = "head"`.
    Head,
}

/// What becomes of the later events of an aggregate, one of whose events is dead.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OnDead {
    /// They wait behind it, in order: `on_dead = "park"`, the default.
    Park,
    /// They go on without it: `on_dead = "continue"`.
    Continue,
}

/// What a transient failure costs under an executor and `OnStart`, where the checkpoint has passed the event.
///
/// Inline, and under `Watermark`, it never uses up budget.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OnTransient {
    /// Budget, like any other failure: `transient = "spend"`, the default.
    Spend,
    /// Nothing: the event is tried again until it is handled. `transient = "redeliver"`.
    Redeliver,
}

/// What a checkpoint records.
///
/// Inline handlers are at-least-once in both modes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CheckpointMode {
    /// That a parallel attempt began: after a crash what ran is not handled again. `checkpoint = "on-start"`.
    OnStart,
    /// That an event has settled: after a crash nothing is lost. `checkpoint = "watermark"`.
    Watermark,
}

/// Everything the attributes say of one component: identity and handlers.
#[derive(Clone, Copy)]
pub struct ComponentDescriptor {
    /// What sort of component.
    pub kind: Kind,
    /// Its name: the struct's, unless `name = ".."` says another.
    pub name: &'static str,
    /// Its version, from 1. A projector of a new version starts a new read model.
    pub version: u32,
    /// Where it begins at first sight.
    pub start: StartAt,
    /// What becomes of events behind a dead one.
    pub on_dead: OnDead,
    /// What a transient failure costs where the checkpoint has passed the event.
    pub transient: OnTransient,
    /// Its own checkpoint mode; `None` takes the bundle's.
    pub checkpoint: Option<CheckpointMode>,
    /// Its handlers, in the order they are written.
    pub handlers: &'static [HandlerDescriptor],
    /// The Rust type.
    pub type_id: fn() -> TypeId,
    /// That type's name, for messages.
    pub type_name: fn() -> &'static str,
    /// Where the struct is written.
    pub location: Location,
}

impl fmt::Debug for ComponentDescriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ComponentDescriptor")
            .field("kind", &self.kind)
            .field("name", &self.name)
            .field("version", &self.version)
            .field("handlers", &self.handlers.len())
            .field("location", &format_args!("{}", self.location))
            .finish_non_exhaustive()
    }
}

impl ComponentDescriptor {
    /// Everything the attributes say of `T`.
    #[must_use]
    pub const fn of<T: Handlers>() -> Self {
        Self {
            kind: T::KIND,
            name: T::NAME,
            version: T::VERSION,
            start: T::START,
            on_dead: T::ON_DEAD,
            transient: T::TRANSIENT,
            checkpoint: T::CHECKPOINT,
            handlers: T::HANDLERS,
            type_id: TypeId::of::<T>,
            type_name: std::any::type_name::<T>,
            location: T::LOCATION,
        }
    }
}

/// The components of one crate, named: what [`components!`](crate::components!) makes.
#[derive(Clone, Copy, Debug)]
pub struct Components {
    /// The path of the constant.
    pub name: &'static str,
    /// The components.
    pub components: &'static [ComponentDescriptor],
}

/// Names a crate's components: `components! { pub ORDERS = [OrderView, Shipping] }`.
///
/// A crate that no code names is not linked, and registers nothing. An application that names the constant (in
/// [`plan!`](crate::plan!), or in the bundle's builder) links the crate.
#[macro_export]
macro_rules! components {
    ($(#[$meta:meta])* $vis:vis $name:ident = [$($component:ty),* $(,)?] $(;)?) => {
        $(#[$meta])*
        $vis const $name: $crate::Components = $crate::Components {
            name: ::core::concat!(::core::module_path!(), "::", ::core::stringify!($name)),
            components: &[$($crate::ComponentDescriptor::of::<$component>()),*],
        };
    };
}

/// Identifies a consumer's stored state, below which its segments hang.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ConsumerKey {
    /// The bundle's name.
    pub bundle: String,
    /// The component's kind.
    pub kind: Kind,
    /// The component's name.
    pub name: String,
    /// The component's version where a version has state of its own (projectors), else 0.
    pub version: u32,
    /// The context whose events it takes.
    pub context: String,
}

impl fmt::Display for ConsumerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bundle, kind, name, version, context } = self;
        write!(f, "{bundle}/{kind}/{name}/v{version}/{context}")
    }
}
