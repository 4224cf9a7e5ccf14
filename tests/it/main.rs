//! The one integration binary.

mod links;
mod smoke;
mod store;
mod tidy;
mod ui;
