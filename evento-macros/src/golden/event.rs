const _: () = {
    use ::evento_core::__private as __e;

    #[automatically_derived]
    impl __e::Event for OrderPlaced {
        const NAME: &'static str = "order.placed";
        const AGGREGATE: &'static str = "order";
        fn aggregate_id(&self) -> __e::Cow<'_, str> {
            __e::aggregate_id(&self.order_id)
        }
    }
};
