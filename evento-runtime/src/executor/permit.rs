//! Permits: dealt to the consumers that compete for one executor, in turns.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, PoisonError},
};

use crate::sync::{Mutex, MutexGuard};

/// Called when permits have been set aside for a consumer that waits for them.
pub(crate) type OnGrant = Box<dyn Fn() + Send + Sync>;

/// The permits of one executor.
///
/// While several consumers want permits each gets one in turn, however long its handlers take: so with work waiting in
/// all of them they start equally many.
pub(crate) struct Permits {
    capacity: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    free: usize,
    members: Vec<Option<Member>>,
    /// Members that want permits, the next to be given one first.
    turns: VecDeque<usize>,
}

struct Member {
    wanted: usize,
    /// Set aside for it, and not yet taken.
    granted: usize,
    in_turns: bool,
    on_grant: OnGrant,
}

/// The permits that one consumer has at hand or in use. They go back when this is dropped.
pub(crate) struct Grant {
    permits: Arc<Permits>,
    member: usize,
    held: usize,
}

impl Permits {
    pub(crate) fn new(capacity: usize) -> Arc<Self> {
        Arc::new(Self { capacity, state: Mutex::new(State { free: capacity, ..State::default() }) })
    }

    pub(crate) fn join(self: &Arc<Self>, on_grant: OnGrant) -> Grant {
        let mut state = self.state();
        let member = Some(Member { wanted: 0, granted: 0, in_turns: false, on_grant });
        let place = match state.members.iter().position(Option::is_none) {
            Some(place) => {
                state.members[place] = member;
                place
            }
            None => {
                state.members.push(member);
                state.members.len() - 1
            }
        };
        drop(state);
        Grant { permits: Arc::clone(self), member: place, held: 0 }
    }

    /// How many are not free.
    pub(crate) fn in_use(&self) -> usize {
        self.capacity - self.state().free
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Grant {
    /// Gives `returned` permits back and asks for `wanted` more, in place of what was asked for before. Answers how many
    /// there are now; for the rest `on_grant` tells when to ask again.
    pub(crate) fn exchange(&mut self, returned: usize, wanted: usize) -> usize {
        debug_assert!(returned <= self.held, "more permits returned than were held");
        let mut state = self.permits.state();
        state.free += returned;
        self.held -= returned;
        if state.want(self.member, wanted) {
            state.turns.push_back(self.member);
        }
        state.deal(self.member);
        let taken = state.members[self.member].as_mut().map_or(0, |member| std::mem::take(&mut member.granted));
        self.held += taken;
        taken
    }

    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fn held(&self) -> usize {
        self.held
    }
}

impl State {
    /// Notes what a member wants; answers whether it is to be given a turn.
    fn want(&mut self, member: usize, wanted: usize) -> bool {
        let Some(member) = self.members[member].as_mut() else { return false };
        member.wanted = wanted.saturating_sub(member.granted);
        let joins = member.wanted > 0 && !member.in_turns;
        member.in_turns |= joins;
        joins
    }

    /// Deals out what is free, one at a time, and tells those that are not `asking` by themselves.
    fn deal(&mut self, asking: usize) {
        while self.free > 0
            && let Some(place) = self.turns.pop_front()
        {
            let Some(member) = self.members[place].as_mut() else { continue };
            if member.wanted == 0 {
                member.in_turns = false;
                continue;
            }
            // Nobody else waits: all at once.
            let given = if self.turns.is_empty() { member.wanted.min(self.free) } else { 1 };
            self.free -= given;
            member.wanted -= given;
            let tell = member.granted == 0 && place != asking;
            member.granted += given;
            if tell {
                (member.on_grant)();
            }
            if member.wanted > 0 {
                self.turns.push_back(place);
            } else {
                member.in_turns = false;
            }
        }
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        let mut state = self.permits.state();
        let unused = state.members[self.member].take().map_or(0, |member| member.granted);
        state.turns.retain(|place| *place != self.member);
        state.free += self.held + unused;
        state.deal(usize::MAX);
    }
}

impl fmt::Debug for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permits").field("capacity", &self.capacity).field("in_use", &self.in_use()).finish()
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant").field("held", &self.held).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use super::*;

    fn join(permits: &Arc<Permits>) -> Grant {
        permits.join(Box::new(|| ()))
    }

    /// B67: permits are guards, and those that are held and those that are free are always all there are.
    #[test]
    fn b67_held_and_free_permits_are_all_there_are_and_a_dropped_grant_gives_its_own_back() {
        let permits = Permits::new(8);
        let (mut first, mut second) = (join(&permits), join(&permits));
        assert_eq!(first.exchange(0, 5), 5);
        assert_eq!(second.exchange(0, 5), 3);
        assert_eq!(permits.in_use(), first.held() + second.held());
        drop(first);
        assert_eq!(second.exchange(0, 2), 2);
        assert_eq!(permits.in_use(), 5);
        drop(second);
        assert_eq!(permits.in_use(), 0);
    }

    #[test]
    fn with_work_in_both_two_consumers_start_equally_many_however_long_theirs_take() {
        let permits = Permits::new(16);
        let mut grants = [join(&permits), join(&permits)];
        let (mut started, mut running) = ([0_usize; 2], [0_usize; 2]);
        for step in 0..20_000 {
            // The first one's handlers return three times as often.
            let member = usize::from(step % 4 == 3);
            let returned = running[member].min(2);
            running[member] -= returned;
            let got = grants[member].exchange(returned, 64);
            running[member] += got;
            started[member] += got;
        }
        let (less, more) = (started[0].min(started[1]), started[0].max(started[1]));
        assert!(more - less <= more / 10, "{started:?}");
    }

    #[test]
    fn a_member_that_waits_is_told_when_a_permit_is_set_aside_for_it() {
        let permits = Permits::new(1);
        let (told, telling) = std::sync::mpsc::channel();
        let mut first = join(&permits);
        let mut second = permits.join(Box::new(move || told.send(()).unwrap()));
        assert_eq!(first.exchange(0, 1), 1);
        assert_eq!(second.exchange(0, 1), 0);
        assert_eq!(first.exchange(1, 0), 0);
        telling.try_recv().unwrap();
        assert_eq!(second.exchange(0, 1), 1);
    }
}
