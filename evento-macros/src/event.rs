//! `#[derive(Event)]`.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::{Attribute, Data, DeriveInput, Field, Fields, Meta, spanned::Spanned};

use crate::{
    args::{Args, Schema},
    component::generated_at,
    diagnostics::Errors,
};

static ON_STRUCT: Schema = Schema {
    attribute: "event",
    options: &[
        ("name", "name = \"order.placed\""),
        ("aggregate", "aggregate = \"order\""),
        ("crate", "crate = \"::evento_core\""),
    ],
    elsewhere: &[("aggregate_id", "it marks the field that identifies the aggregate")],
};

static ON_FIELD: Schema = Schema {
    attribute: "event",
    options: &[("aggregate_id", "aggregate_id")],
    elsewhere: &[
        ("name", "it belongs on the struct"),
        ("aggregate", "it belongs on the struct"),
        ("crate", "it belongs on the struct"),
    ],
};

pub(crate) fn expand(item: TokenStream) -> TokenStream {
    let input: DeriveInput = match syn::parse2(item) {
        Ok(input) => input,
        Err(error) => return error.into_compile_error(),
    };
    let mut errors = Errors::default();
    let args = event_args(&input.attrs, &ON_STRUCT, &mut errors);
    let core = args.core_path(&mut errors);
    let name = required(&args, "name", "what the event is stored under", &input, &mut errors);
    let aggregate = required(&args, "aggregate", "the type of the aggregate it belongs to", &input, &mut errors);
    let aggregate_id = aggregate_id(&input, &mut errors);
    if !input.generics.params.is_empty() {
        errors.over(
            &input.generics.params,
            "an event is not generic: the name it is stored under belongs to one concrete type",
        );
        return errors.into_tokens();
    }

    let ident = &input.ident;
    let errors = errors.into_tokens();
    quote! {
        const _: () = {
            use #core::__private as __e;

            #[automatically_derived]
            impl __e::Event for #ident {
                const NAME: &'static str = #name;
                const AGGREGATE: &'static str = #aggregate;

                fn aggregate_id(&self) -> __e::Cow<'_, str> {
                    #aggregate_id
                }
            }
        };
        #errors
    }
}

/// The arguments of all `#[event(..)]` attributes among `attrs`.
fn event_args(attrs: &[Attribute], schema: &'static Schema, errors: &mut Errors) -> Args {
    let mut args = Args::none(schema);
    for attr in attrs.iter().filter(|attr| attr.path().is_ident("event")) {
        match &attr.meta {
            Meta::List(list) => args.extend(list.tokens.clone(), errors),
            other => {
                let example = schema.options[0].1;
                errors.over(other, format!("`#[event]` wants its options in parentheses: `#[event({example})]`"));
            }
        }
    }
    args
}

fn required(args: &Args, key: &str, meaning: &str, input: &DeriveInput, errors: &mut Errors) -> String {
    if !args.has(key) {
        let ident = &input.ident;
        errors.at(ident.span(), format!("`{ident}` has no `{key}`, {meaning}: add `#[event({key} = \"..\")]`"));
    }
    args.stored_name(key, errors).map_or_else(String::new, syn::LitStr::value)
}

/// The body of `aggregate_id`, which reads the one marked field.
fn aggregate_id(input: &DeriveInput, errors: &mut Errors) -> TokenStream {
    let nothing = quote!(__e::Cow::Borrowed(""));
    let ident = &input.ident;
    let fields = match &input.data {
        Data::Struct(data) => &data.fields,
        Data::Enum(data) => {
            let cure = "make each variant a struct of its own that derives `Event`";
            errors.at(data.enum_token.span, format!("an event is a struct, not an enum: {cure}"));
            return nothing;
        }
        Data::Union(data) => {
            errors.at(data.union_token.span, "an event is a struct, not a union");
            return nothing;
        }
    };
    let marked: Vec<&Field> = fields
        .iter()
        .filter(|field| event_args(&field.attrs, &ON_FIELD, errors).flag("aggregate_id", errors))
        .collect();
    let Fields::Named(_) = fields else {
        let cure = "name its fields, and mark the one that identifies the aggregate with `#[event(aggregate_id)]`";
        errors.at(ident.span(), format!("an event is a struct with named fields: {cure}"));
        return nothing;
    };
    for second in marked.iter().skip(1) {
        errors.over(&second.ident, "a second `#[event(aggregate_id)]`: one field identifies the aggregate");
    }
    match marked.first() {
        Some(Field { ident, ty, .. }) => {
            let read = quote_spanned!(generated_at(ty.span())=> __e::aggregate_id);
            quote!(#read(&self.#ident))
        }
        None => {
            let cure = "mark the field that identifies the aggregate with `#[event(aggregate_id)]`";
            errors.at(ident.span(), format!("`{ident}` does not say which aggregate it belongs to: {cure}"));
            nothing
        }
    }
}
