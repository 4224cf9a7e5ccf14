evento_core::plan! {
    SHOP = {
        executors: ["read-models"],
        components: [handlers_orders::ORDERS, handlers_billing::BILLING],
    }
}

fn main() {}
