struct r#View;
const _: () = {
    use facade::evento_core::__private as __e;

    #[automatically_derived]
    impl __e::is_projector for r#View {}

    #[automatically_derived]
    impl __e::Component for r#View {
        const KIND: __e::Kind = __e::Kind::Projector;
        const NAME: &'static str = "view";
        const VERSION: u32 = __e::version(VERSION);
        const START: __e::StartAt = __e::StartAt::Head;
        const ON_DEAD: __e::OnDead = __e::OnDead::Continue;
        const TRANSIENT: __e::OnTransient = __e::OnTransient::Redeliver;
        const CHECKPOINT: __e::Option<__e::CheckpointMode> = __e::Option::Some(
            __e::CheckpointMode::OnStart,
        );
        const LOCATION: __e::Location = __e::location!();
    }

    __e::inventory::submit! {
        __e::Entry::of:: < r#View > ()
    }
};
impl super::r#View {
    #[cfg(feature = "extra")]
    async fn r#type(&self, _: &A) -> anyhow::Result<()> {
        Ok(())
    }
    async fn on_b(&self, _: &B) -> anyhow::Result<()> {
        Ok(())
    }
    fn helper() {}
}
const _: () = {
    use facade::evento_core::__private as __e;

    #[cfg(feature = "extra")]
    #[allow(unused_imports)]
    use evento_core::event_handler as _;
    #[allow(unused_imports)]
    use evento_core::event_handler as _;

    const _: () = __e::projector::<super::r#View>();

    #[automatically_derived]
    impl __e::has_handlers for super::r#View {
        const HANDLERS: &'static [__e::HandlerDescriptor] = &[
            #[cfg(feature = "extra")]
            __e::HandlerDescriptor::new(
                    "type",
                    __e::EventType::of::<A>(),
                    __e::location!(),
                    |this, ctx| {
                        let event = __e::decode::<A>(ctx)?;
                        __e::called(async move {
                            let out = Self::r#type(__e::typed(this), &event).await;
                            __e::HandlerOutput::into_result(out)
                        })
                    },
                )
                .with_executor(READ_MODEL)
                .with_retry(__e::retry_under_executor(RETRIES))
                .with_retry_delay(__e::Duration::from_millis(500))
                .with_timeout(__e::Duration::from_millis(300000)),
            __e::HandlerDescriptor::new(
                    "on_b",
                    __e::EventType::of::<B>(),
                    __e::location!(),
                    |this, ctx| {
                        let event = __e::decode::<B>(ctx)?;
                        __e::called(async move {
                            let out = Self::on_b(__e::typed(this), &event).await;
                            __e::HandlerOutput::into_result(out)
                        })
                    },
                )
                .with_retry(-1),
        ];
    }

    #[cfg(feature = "extra")]
    #[automatically_derived]
    impl __e::HandlesEvent<A> for super::r#View {}

    #[automatically_derived]
    impl __e::HandlesEvent<B> for super::r#View {}
};
