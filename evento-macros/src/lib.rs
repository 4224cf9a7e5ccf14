//! The attributes of Evento: `#[projector]`, `#[event_handler]` and `#[derive(Event)]`.
//!
//! Use them through `evento-core`, which re-exports them and holds everything they expand to. What an expansion looks
//! like is shown, and explained, in the last chapter of that crate's documentation.

mod args;
mod component;
mod diagnostics;
mod event;
mod handler;
mod item;

#[cfg(test)]
mod golden;

use proc_macro::TokenStream;

/// Declares a projector: with its options on the struct, bare on the impl block that holds its handlers.
///
/// | option on the struct | values | default |
/// |---|---|---|
/// | `version` | 1 to 4294967295, a literal or a constant of type `u32` | 1 |
/// | `name` | 1 to 512 bytes | the struct's name |
/// | `start` | `"beginning"`, `"head"` | `"beginning"` |
/// | `on_dead` | `"park"`, `"continue"` | `"park"` |
/// | `transient` | `"spend"`, `"redeliver"` | `"spend"` |
/// | `checkpoint` | `"on-start"`, `"watermark"` | the bundle's |
/// | `crate` | the path of `evento_core` | `"::evento_core"` |
///
/// On the impl block only `crate` is allowed. A component is one concrete type with one such block: registration at
/// link time needs both.
#[proc_macro_attribute]
pub fn projector(args: TokenStream, item: TokenStream) -> TokenStream {
    component::expand(&component::PROJECTOR, args.into(), item.into()).into()
}

/// Declares a method of a `#[projector]` impl block as the handler of one event type.
///
/// The method is `async fn name(&self, event: &YourEvent) -> Result<(), E>`, where `ctx: &Context` may be a third
/// parameter and `E` is any error that converts into `anyhow::Error`.
///
/// | option | values | default |
/// |---|---|---|
/// | `executor` | a name, or a constant of type `ExecutorName` | inline: one event at a time, in order |
/// | `retry` | -1 to 1000, a literal or a constant of type `i32`; -1 is for ever, inline only | for ever inline, 0 under an executor |
/// | `retry_delay` | a duration: `"500ms"`, `"30s"`, `"5m"`, `"1h"` | 1 s, doubling up to 30 s |
/// | `timeout` | a duration | none |
#[proc_macro_attribute]
pub fn event_handler(_args: TokenStream, item: TokenStream) -> TokenStream {
    handler::expand_alone(item.into()).into()
}

/// Makes a struct an event: `#[event(name = "order.placed", aggregate = "order")]` on the struct,
/// `#[event(aggregate_id)]` on exactly one field, of any type that implements `ToString`.
///
/// `name` is what the event is stored under, `aggregate` the type of the aggregate it belongs to; both are required
/// and have 1 to 512 bytes without a zero byte. `crate` is the path of `evento_core`.
#[proc_macro_derive(Event, attributes(event))]
pub fn derive_event(item: TokenStream) -> TokenStream {
    event::expand(item.into()).into()
}
