//! Plans: executors and components of an application, checked by the compiler across crates.

mod check;
mod report;
mod table;

use crate::{ComponentDescriptor, Components, ExecutorName, Location};

/// What an application consists of: made by [`plan!`](crate::plan!), checked when it compiles.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Plan {
    /// The path of the constant.
    pub name: &'static str,
    /// Where it is written.
    pub location: Location,
    /// The executors the bundle will register.
    pub executors: &'static [ExecutorName],
    /// The components it will be given instances of.
    pub components: &'static [Components],
}

impl Plan {
    /// A plan without contradictions.
    ///
    /// # Panics
    /// Where a handler names an executor that is not among `executors`, where an executor, or a component's kind and
    /// name, is there twice, and where one event name belongs to two types of aggregate. The message holds every such
    /// problem; in a constant it is a compile error.
    ///
    /// Events beyond the first 3,072 are not compared here; the bundle's start compares all.
    #[must_use]
    #[track_caller]
    pub const fn checked(
        name: &'static str,
        location: Location,
        executors: &'static [ExecutorName],
        components: &'static [Components],
    ) -> Self {
        let plan = Self { name, location, executors, components };
        let mut report = report::Report::new();
        check::problems(&plan, &mut report);
        if !report.is_empty() {
            refuse(report.as_str());
        }
        plan
    }

    /// Every component of the plan.
    pub fn descriptors(&self) -> impl Iterator<Item = &'static ComponentDescriptor> {
        self.components.iter().flat_map(|group| group.components)
    }
}

#[track_caller]
#[expect(clippy::panic, reason = "runs when the plan is compiled")]
const fn refuse(problems: &str) -> ! {
    panic!("{}", problems)
}

/// Makes a [`Plan`](crate::plan::Plan): the executors of an application and the components of its crates, which the compiler holds
/// against each other.
///
/// Executors are texts or constants of type [`ExecutorName`](crate::ExecutorName); components are the constants that
/// [`components!`](crate::components!) made. A handler that names an executor which is not listed does not compile, in
/// whichever crate it stands; nor does a plan with one component, or one executor, twice.
///
/// ```
/// # mod orders {
/// #     use evento_core::{Event, event_handler, projector};
/// #     #[derive(Event, serde::Serialize, serde::Deserialize)]
/// #     #[event(name = "order.placed", aggregate = "order")]
/// #     pub struct OrderPlaced { #[event(aggregate_id)] order_id: String }
/// #     #[projector]
/// #     pub struct OrderView;
/// #     #[projector]
/// #     impl OrderView {
/// #         #[event_handler(executor = "read-model")]
/// #         async fn on_placed(&self, _: &OrderPlaced) -> anyhow::Result<()> { Ok(()) }
/// #     }
/// #     pub const AUDIT: evento_core::ExecutorName = evento_core::ExecutorName::new("audit");
/// #     evento_core::components! { pub ORDERS = [OrderView] }
/// # }
/// evento_core::plan! {
///     /// What the shop consists of.
///     pub SHOP = { executors: ["read-model", orders::AUDIT], components: [orders::ORDERS] }
/// }
///
/// assert_eq!(SHOP.descriptors().map(|component| component.name).collect::<Vec<_>>(), ["OrderView"]);
/// ```
#[macro_export]
macro_rules! plan {
    (
        $(#[$meta:meta])*
        $vis:vis $name:ident = {
            executors: [$($executor:expr),* $(,)?],
            components: [$($components:expr),* $(,)?] $(,)?
        } $(;)?
    ) => {
        $(#[$meta])*
        $vis const $name: $crate::plan::Plan = $crate::plan::Plan::checked(
            ::core::concat!(::core::module_path!(), "::", ::core::stringify!($name)),
            $crate::__private::location!(),
            &[$($crate::__private::Executor($executor).name()),*],
            &[$($components),*],
        );
    };
}
