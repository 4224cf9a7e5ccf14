//! Permits and the queue, whatever the order in which their threads run.

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering},
};

use shuttle::{future, thread};
use tokio::sync::Notify;

use super::{Next, Permits, Queue};
use crate::sync::{AtomicUsize, Mutex, order};

/// Three consumers of one executor take and return permits, one of them leaves with permits in hand, one before it was
/// told of those set aside for it: never more than the capacity are out, whoever waits is told, and all come back.
#[test]
fn b67_permits_are_conserved_and_whoever_waits_for_one_is_told() {
    order::each(4_000, || {
        const CAPACITY: usize = 2;
        let (permits, out) = (Permits::new(CAPACITY), Arc::new(AtomicUsize::new(0)));
        let members: Vec<_> = (0..3_usize)
            .map(|number| {
                let (permits, out) = (Arc::clone(&permits), Arc::clone(&out));
                thread::spawn(move || {
                    let told = Arc::new(Notify::new());
                    let mut grant = permits.join({
                        let told = Arc::clone(&told);
                        Box::new(move || told.notify_one())
                    });
                    let (mut returned, mut left) = (0, 3_usize);
                    while left > 0 {
                        let got = grant.exchange(returned, left.min(CAPACITY));
                        returned = got;
                        if got == 0 {
                            if number == 2 && left == 1 {
                                // Leaves while it waits: what is set aside for it goes to the others.
                                return;
                            }
                            future::block_on(told.notified());
                            continue;
                        }
                        let now = out.fetch_add(got, Ordering::SeqCst) + got;
                        assert!(now <= CAPACITY, "{now} permits of {CAPACITY} are out");
                        left -= got.min(left);
                        out.fetch_sub(got, Ordering::SeqCst);
                    }
                    if number == 1 {
                        assert_eq!((grant.exchange(returned, 0), grant.held()), (0, 0));
                    }
                })
            })
            .collect();
        for member in members {
            member.join().unwrap();
        }
        assert_eq!(permits.in_use(), 0, "not all permits came back");
    });
}

/// A pool of workers as an executor has it.
struct Pool {
    queue: Queue<Arc<usize>, usize>,
    done: Mutex<Vec<usize>>,
    all_done: Notify,
    expected: usize,
    workers: Mutex<VecDeque<thread::JoinHandle<()>>>,
}

impl Pool {
    fn push(self: &Arc<Self>, owner: &Arc<usize>, work: Vec<usize>) {
        let made = self.queue.push(owner, work.into_iter());
        self.make(made);
    }

    fn make(self: &Arc<Self>, workers: usize) {
        for _ in 0..workers {
            let pool = Arc::clone(self);
            let worker = thread::spawn(move || future::block_on(pool.work()));
            self.workers.lock().unwrap().push_back(worker);
        }
    }

    async fn work(self: Arc<Self>) {
        let (mut owner, mut more) = (None, VecDeque::new());
        loop {
            if let (Some(number), Some(owner)) = (more.pop_front(), &owner) {
                self.handle(number, owner, &mut more).await;
                continue;
            }
            match self.queue.next(owner.as_ref(), &mut more, 2) {
                Next::Work(other) => owner = other.or(owner),
                Next::Sleep => self.queue.sleep().await,
                Next::End => return,
            }
        }
    }

    /// Every other piece of work waits once, and what its worker has taken beside it goes back.
    async fn handle(self: &Arc<Self>, number: usize, owner: &Arc<usize>, more: &mut VecDeque<usize>) {
        assert_eq!(**owner, number / 100, "{number} is another owner's");
        if number.is_multiple_of(2) {
            if !more.is_empty() {
                let made = self.queue.put_back(owner, more);
                self.make(made);
            }
            let made = self.queue.waits();
            self.make(made);
            future::yield_now().await;
            self.queue.goes_on();
        }
        let mut done = self.done.lock().unwrap();
        done.push(number);
        if done.len() == self.expected {
            self.all_done.notify_one();
        }
    }
}

/// Two consumers push work while workers come, sleep, wait and go on: all of it is done, once, though nothing but the
/// queue ever wakes a worker; and at the end every worker ends.
#[test]
fn r55_no_piece_of_work_stays_in_the_queue_while_workers_sleep() {
    order::each(4_000, || {
        let pool = Arc::new(Pool {
            queue: Queue::new(3, 2),
            done: Mutex::new(Vec::new()),
            all_done: Notify::new(),
            expected: 10,
            workers: Mutex::new(VecDeque::new()),
        });
        let owners: Vec<_> = (0..2_usize)
            .map(|owner| {
                let pool = Arc::clone(&pool);
                thread::spawn(move || {
                    let first = owner * 100;
                    let owner = Arc::new(owner);
                    pool.push(&owner, vec![first]);
                    pool.push(&owner, vec![first + 1, first + 2]);
                    pool.push(&owner, vec![first + 3, first + 4]);
                })
            })
            .collect();
        for owner in owners {
            owner.join().unwrap();
        }
        future::block_on(pool.all_done.notified());
        pool.queue.close();
        loop {
            let worker = pool.workers.lock().unwrap().pop_front();
            let Some(worker) = worker else { break };
            worker.join().unwrap();
        }
        let mut done = pool.done.lock().unwrap().clone();
        done.sort_unstable();
        assert_eq!(done, [0, 1, 2, 3, 4, 100, 101, 102, 103, 104]);
    });
}
