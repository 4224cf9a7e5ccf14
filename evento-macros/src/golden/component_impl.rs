impl OrderView {
    async fn on_placed(&self, event: &OrderPlaced) -> anyhow::Result<()> {
        self.db.insert(event)
    }
    async fn on_total(
        &self,
        event: &OrderTotalRecomputed,
        ctx: &Context,
    ) -> anyhow::Result<()> {
        self.db.update(event, ctx.position())
    }
}
const _: () = {
    use ::evento_core::__private as __e;
    #[allow(unused_imports)]
    use event_handler as _;

    const _: () = __e::projector::<OrderView>();

    #[automatically_derived]
    impl __e::has_handlers for OrderView {
        const HANDLERS: &'static [__e::HandlerDescriptor] = &[
            __e::HandlerDescriptor::new(
                "on_placed",
                __e::EventType::of::<OrderPlaced>(),
                __e::location!(),
                |this, ctx| {
                    let event = __e::decode::<OrderPlaced>(ctx)?;
                    __e::called(async move {
                        let out = Self::on_placed(__e::typed(this), &event).await;
                        __e::HandlerOutput::into_result(out)
                    })
                },
            ),
            __e::HandlerDescriptor::new(
                    "on_total",
                    __e::EventType::of::<OrderTotalRecomputed>(),
                    __e::location!(),
                    |this, ctx| {
                        let event = __e::decode::<OrderTotalRecomputed>(ctx)?;
                        __e::called(async move {
                            let out = Self::on_total(__e::typed(this), &event, ctx)
                                .await;
                            __e::HandlerOutput::into_result(out)
                        })
                    },
                )
                .with_executor(__e::ExecutorName::new("read-model"))
                .with_retry(3),
        ];
    }

    #[automatically_derived]
    impl __e::HandlesEvent<OrderPlaced> for OrderView {}

    #[automatically_derived]
    impl __e::HandlesEvent<OrderTotalRecomputed> for OrderView {}
};
