//! The one integration binary.

mod links;
mod parallel;
mod smoke;
mod store;
mod ui;
