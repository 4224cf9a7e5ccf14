//! stub
/// stub
#[proc_macro_derive(Event, attributes(event))]
pub fn a(_: proc_macro::TokenStream) -> proc_macro::TokenStream {
    Default::default()
}
/// stub
#[proc_macro_attribute]
pub fn projector(_: proc_macro::TokenStream, i: proc_macro::TokenStream) -> proc_macro::TokenStream {
    i
}
/// stub
#[proc_macro_attribute]
pub fn event_handler(_: proc_macro::TokenStream, i: proc_macro::TokenStream) -> proc_macro::TokenStream {
    i
}
