use evento_runtime::store::MemoryStore;
use evento_tests::conformance::Fixture;

evento_tests::conformance!(Fixture::new(MemoryStore::new(), ()), tokio::test(start_paused = true));

mod with_holes {
    use super::*;

    evento_tests::conformance!(Fixture::new(MemoryStore::with_holes(3), ()), tokio::test(start_paused = true));
}
