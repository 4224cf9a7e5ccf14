//! The one integration binary.

mod store;
