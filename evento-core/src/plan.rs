//! Plans: executors and components of an application, checked by the compiler across crates.

use crate::{ComponentDescriptor, Components, ExecutorName};

/// What an application consists of: made by [`plan!`](crate::plan!), checked when it compiles.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The executors the bundle will register.
    pub executors: &'static [ExecutorName],
    /// The components it will be given instances of.
    pub components: &'static [Components],
}

impl Plan {
    /// Every component of the plan.
    pub fn descriptors(&self) -> impl Iterator<Item = &'static ComponentDescriptor> {
        self.components.iter().flat_map(|group| group.components)
    }
}
