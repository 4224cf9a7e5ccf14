pub struct OrderView {
    db: Db,
}
const _: () = {
    use ::evento_core::__private as __e;

    #[automatically_derived]
    impl __e::is_projector for OrderView {}

    #[automatically_derived]
    impl __e::Component for OrderView {
        const KIND: __e::Kind = __e::Kind::Projector;
        const NAME: &'static str = "OrderView";
        const VERSION: u32 = 1;
        const START: __e::StartAt = __e::StartAt::Beginning;
        const ON_DEAD: __e::OnDead = __e::OnDead::Park;
        const TRANSIENT: __e::OnTransient = __e::OnTransient::Spend;
        const CHECKPOINT: __e::Option<__e::CheckpointMode> = __e::Option::None;
        const LOCATION: __e::Location = __e::location!();
    }

    __e::inventory::submit! {
        __e::Entry::of:: < OrderView > ()
    }
};
