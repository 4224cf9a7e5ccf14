//! What the application consists of.

evento_core::plan! {
    /// Orders and billing.
    pub SHOP = {
        executors: ["read-model", handlers_orders::AUDIT],
        components: [handlers_orders::ORDERS, handlers_billing::BILLING],
    }
}

/// Every linked handler, as `Component::method`, in the order of the registry.
#[must_use]
pub fn census() -> Vec<String> {
    let names = |component: &evento_core::ComponentDescriptor| {
        let name = component.name;
        component.handlers.iter().map(move |handler| format!("{name}::{}", handler.method)).collect::<Vec<_>>()
    };
    evento_core::linked().into_iter().flat_map(names).collect()
}
