use evento_runtime::store::SqliteStore;
use evento_tests::conformance::Fixture;

/// A file of its own in a folder of its own.
fn fixture() -> Fixture {
    let folder = tempfile::tempdir().expect("a folder");
    Fixture::new(SqliteStore::at(folder.path().join("shop.db")), folder)
}

evento_tests::conformance!(fixture(), tokio::test);
