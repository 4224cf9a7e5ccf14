use evento_core::{Context, Event, ExecutorName, event_handler, projector};
use serde::{Deserialize, Serialize};

#[derive(Event, Serialize, Deserialize)]
#[event(name = "a", aggregate = "x")]
struct A {
    #[event(aggregate_id)]
    id: u64,
}

#[derive(Event, Serialize, Deserialize)]
#[event(name = "b")]
#[event(aggregate = "x", crate = "evento_core")]
struct B {
    other: bool,
    #[event(aggregate_id)]
    id: String,
}

const VERSION: u32 = 3;
const RETRIES: i32 = 5;
const MAIL: ExecutorName = ExecutorName::new("mail");

#[projector(
    version = VERSION,
    name = "view",
    start = "head",
    on_dead = "continue",
    transient = "redeliver",
    checkpoint = "watermark",
    crate = "::evento_core",
)]
struct View;

type Alias = View;

#[projector]
impl Alias {
    #![allow(dead_code)]

    const HELPED: [u8; 2] = [1; 2];

    #[event_handler(executor = MAIL, retry = RETRIES, retry_delay = "500ms", timeout = "1h")]
    async fn on_a(self: &Self, A { id }: &A) -> Result<(), std::io::Error> {
        self.help(*id);
        Ok(())
    }

    #[evento_core::event_handler(retry = -1,)]
    pub(crate) async fn on_b(&self, event: &'_ crate::B, ctx: &Context) -> anyhow::Result<()> {
        anyhow::ensure!(event.other && ctx.attempt() == 1);
        Ok(())
    }

    fn help(&self, id: u64) -> u64 {
        id + u64::from(Self::HELPED[0])
    }
}

fn main() {
    let [view] = evento_core::linked()[..] else { unreachable!() };
    assert_eq!((view.name, view.version, view.location.line), ("view", 3, 33));
    let [a, b] = view.handlers else { unreachable!() };
    assert_eq!((a.executor, a.location.line), (Some(MAIL), 44));
    assert_eq!(a.retry, evento_core::RetryOption::Times(5));
    assert_eq!(a.timeout, Some(std::time::Duration::from_secs(3600)));
    assert_eq!(b.retry, evento_core::RetryOption::Forever);
}
