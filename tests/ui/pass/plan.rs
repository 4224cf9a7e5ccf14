evento_core::plan! {
    /// Documented, and seen by nobody else.
    pub(crate) SHOP = {
        executors: ["read-model", handlers_orders::AUDIT, evento_core::ExecutorName::new("spare")],
        components: [handlers_orders::ORDERS, handlers_billing::BILLING,],
    };
}

fn main() {
    assert_eq!(SHOP.name, "trybuild000::SHOP".replace("trybuild000", module_path!()));
    assert_eq!(SHOP.location.line, 1);
    assert_eq!(SHOP.descriptors().count(), 3);
}
