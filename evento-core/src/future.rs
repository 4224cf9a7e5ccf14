use std::{future::Future, pin::Pin};

/// A boxed future: what handlers and store operations answer with, so that both can be trait objects.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
