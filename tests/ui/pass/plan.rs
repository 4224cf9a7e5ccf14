evento_core::plan! {
    /// Documented, and seen by nobody else.
    pub(crate) SHOP = {
        executors: ["read-model", handlers_orders::AUDIT, evento_core::ExecutorName::new("spare")],
        components: [handlers_orders::ORDERS, handlers_billing::BILLING,],
    };
}

fn main() {
    assert!(SHOP.name.ends_with("::SHOP"));
    assert_eq!(SHOP.location.line, 1);
    assert_eq!(SHOP.descriptors().count(), 3);
}
