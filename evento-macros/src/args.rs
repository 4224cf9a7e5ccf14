//! Attribute arguments: lists of `key = value`, every mistake reported on its own token.

use std::ops::RangeInclusive;

use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::{
    Expr, ExprLit, ExprUnary, Lit, LitStr, Path, Token, UnOp,
    ext::IdentExt,
    parse::{ParseStream, Parser},
};

use crate::diagnostics::{Errors, listed, nearest};

/// Which options an attribute takes.
pub(crate) struct Schema {
    /// The attribute, as in `#[event_handler]`.
    pub(crate) attribute: &'static str,
    /// Its options, each with an example of its use.
    pub(crate) options: &'static [(&'static str, &'static str)],
    /// What people may look for here, and where it belongs.
    pub(crate) elsewhere: &'static [(&'static str, &'static str)],
}

impl Schema {
    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.options.iter().map(|(name, _)| *name)
    }

    fn example(&self, key: &str) -> &'static str {
        self.options.iter().find(|(name, _)| *name == key).map_or("", |(_, example)| example)
    }

    fn unknown(&self, key: &str) -> String {
        let Self { attribute, .. } = self;
        if let Some((_, place)) = self.elsewhere.iter().find(|(name, _)| *name == key) {
            return format!("`{key}` is no option of this `#[{attribute}]`: {place}");
        }
        match nearest(key, self.names()) {
            Some(name) => format!("unknown option `{key}` of `#[{attribute}]`: did you mean `{name}`?"),
            None => format!("unknown option `{key}` of `#[{attribute}]`: it takes {}", listed(self.names())),
        }
    }
}

/// The arguments one attribute was given: known ones, each once.
pub(crate) struct Args {
    schema: &'static Schema,
    given: Vec<Arg>,
}

struct Arg {
    key: Ident,
    value: Option<Expr>,
}

/// An integer option.
pub(crate) enum Integer {
    /// A literal, which is in range.
    Literal(i64),
    /// A constant expression, whose range the compiler has to check.
    Constant(Expr),
}

impl Args {
    pub(crate) fn none(schema: &'static Schema) -> Self {
        Self { schema, given: Vec::new() }
    }

    pub(crate) fn parse(schema: &'static Schema, tokens: TokenStream, errors: &mut Errors) -> Self {
        let mut args = Self::none(schema);
        args.extend(tokens, errors);
        args
    }

    /// Adds the arguments of a further attribute of the same name.
    pub(crate) fn extend(&mut self, tokens: TokenStream, errors: &mut Errors) {
        let parser = |input: ParseStream<'_>| {
            while !input.is_empty() {
                let parsed = Arg::parse(input, self.schema);
                let clean = parsed.is_ok();
                match parsed {
                    Ok(arg) => self.add(arg, errors),
                    Err(error) => errors.add(error),
                }
                skip_past_comma(input, clean, errors)?;
            }
            Ok(())
        };
        if let Err(error) = parser.parse2(tokens) {
            errors.add(error);
        }
    }

    fn add(&mut self, arg: Arg, errors: &mut Errors) {
        let key = arg.key.to_string();
        if !self.schema.names().any(|name| name == key) {
            errors.at(arg.key.span(), self.schema.unknown(&key));
        } else if self.find(&key).is_some() {
            errors.at(arg.key.span(), format!("`{key}` is given twice: remove one"));
        } else {
            self.given.push(arg);
        }
    }

    fn find(&self, key: &str) -> Option<&Arg> {
        self.given.iter().find(|arg| arg.key == key)
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.find(key).is_some()
    }

    /// The value of `key`; where it has none, that is an error.
    pub(crate) fn value(&self, key: &str, errors: &mut Errors) -> Option<&Expr> {
        let arg = self.find(key)?;
        if arg.value.is_none() {
            errors.at(arg.key.span(), format!("`{key}` wants a value: `{}`", self.schema.example(key)));
        }
        arg.value.as_ref()
    }

    /// An option that has no value.
    pub(crate) fn flag(&self, key: &str, errors: &mut Errors) -> bool {
        let Some(arg) = self.find(key) else { return false };
        if let Some(value) = &arg.value {
            errors.over(value, format!("`{key}` takes no value: write `{}`", self.schema.example(key)));
        }
        true
    }

    pub(crate) fn string(&self, key: &str, errors: &mut Errors) -> Option<&LitStr> {
        let value = self.value(key, errors)?;
        let string = as_string(value);
        if string.is_none() {
            errors.over(value, format!("`{key}` is a string: `{}`", self.schema.example(key)));
        }
        string
    }

    /// A name that is stored: 1 to 512 bytes, none of them zero.
    pub(crate) fn stored_name(&self, key: &str, errors: &mut Errors) -> Option<&LitStr> {
        let literal = self.string(key, errors)?;
        let text = literal.value();
        if !(1..=512).contains(&text.len()) || text.contains('\0') {
            let len = text.len();
            errors.at(literal.span(), format!("`{key}` has 1 to 512 bytes without a zero byte, this has {len}"));
            return None;
        }
        Some(literal)
    }

    /// One of some words; answers with what the word stands for.
    pub(crate) fn choice<T: Copy>(&self, key: &str, words: &[(&str, T)], errors: &mut Errors) -> Option<T> {
        let literal = self.string(key, errors)?;
        let given = literal.value();
        let found = words.iter().find(|(word, _)| *word == given);
        if found.is_none() {
            let quoted: Vec<_> = words.iter().map(|(word, _)| format!("`\"{word}\"`")).collect();
            let hint = match nearest(&given, words.iter().map(|(word, _)| *word)) {
                Some(word) => format!("did you mean `\"{word}\"`?"),
                None => format!("write {}", quoted.join(" or ")),
            };
            errors.at(literal.span(), format!("`{key}` cannot be `{given:?}`: {hint}"));
        }
        found.map(|(_, meaning)| *meaning)
    }

    pub(crate) fn integer(&self, key: &str, range: RangeInclusive<i64>, errors: &mut Errors) -> Option<Integer> {
        let value = self.value(key, errors)?;
        match as_integer(value) {
            Number::Integer(number) if range.contains(&number) => Some(Integer::Literal(number)),
            Number::Integer(_) | Number::TooLong => {
                errors.over(value, format!("`{key}` is {} to {}", range.start(), range.end()));
                None
            }
            Number::OtherLiteral => {
                errors.over(value, format!("`{key}` is an integer: `{}`", self.schema.example(key)));
                None
            }
            Number::Expression => Some(Integer::Constant(value.clone())),
        }
    }

    /// A duration above zero, in milliseconds.
    pub(crate) fn millis(&self, key: &str, errors: &mut Errors) -> Option<u64> {
        let value = self.value(key, errors)?;
        let millis = as_string(value).and_then(|literal| parse_millis(&literal.value()));
        if millis.is_none() {
            errors.over(
                value,
                format!(
                    "`{key}` is a duration above zero: a whole number and its unit, such as `\"500ms\"`, `\"30s\"`, \
                     `\"5m\"` or `\"1h\"`"
                ),
            );
        }
        millis
    }

    /// The path of `evento_core`.
    pub(crate) fn core_path(&self, errors: &mut Errors) -> Path {
        let path = self.string("crate", errors).and_then(|literal| {
            let parsed = literal.parse_with(Path::parse_mod_style);
            if parsed.is_err() {
                errors.at(literal.span(), "`crate` is the path of `evento_core`: `crate = \"::facade::evento_core\"`");
            }
            parsed.ok()
        });
        path.unwrap_or_else(|| syn::parse_quote!(::evento_core))
    }
}

impl Arg {
    fn parse(input: ParseStream<'_>, schema: &Schema) -> syn::Result<Self> {
        let Ok(key) = input.call(Ident::parse_any) else {
            return Err(input.error(format!(
                "expected an option: `#[{}]` takes {}",
                schema.attribute,
                listed(schema.names())
            )));
        };
        if !input.peek(Token![=]) {
            return Ok(Self { key, value: None });
        }
        input.parse::<Token![=]>()?;
        let half_typed = input.is_empty() || input.peek(Token![,]);
        Ok(Self { key, value: if half_typed { None } else { Some(ungrouped(input.parse()?)) } })
    }
}

/// What a `macro_rules!` fragment holds.
fn ungrouped(value: Expr) -> Expr {
    match value {
        Expr::Group(group) => ungrouped(*group.expr),
        value => value,
    }
}

/// Goes on behind the next comma; what stands before it is an error, so that one mistake hides no other.
fn skip_past_comma(input: ParseStream<'_>, mut clean: bool, errors: &mut Errors) -> syn::Result<()> {
    while !input.is_empty() && !input.peek(Token![,]) {
        let token: TokenTree = input.parse()?;
        if std::mem::replace(&mut clean, false) {
            errors.at(token.span(), "expected a comma between two options");
        }
    }
    input.parse::<Option<Token![,]>>().map(drop)
}

fn as_string(value: &Expr) -> Option<&LitStr> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Str(literal), .. }) => Some(literal),
        _ => None,
    }
}

enum Number {
    Integer(i64),
    TooLong,
    OtherLiteral,
    Expression,
}

fn as_integer(value: &Expr) -> Number {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Int(literal), .. }) => {
            literal.base10_parse().map_or(Number::TooLong, Number::Integer)
        }
        Expr::Lit(_) => Number::OtherLiteral,
        Expr::Unary(ExprUnary { op: UnOp::Neg(_), expr, .. }) => match as_integer(expr) {
            Number::Integer(number) => Number::Integer(-number),
            other => other,
        },
        _ => Number::Expression,
    }
}

fn parse_millis(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit).filter(|millis| *millis > 0)
}

#[cfg(test)]
mod tests {
    use quote::quote;

    use super::{Args, Integer, Schema, parse_millis};
    use crate::diagnostics::Errors;

    static SCHEMA: Schema = Schema {
        attribute: "thing",
        options: &[("name", "name = \"..\""), ("size", "size = 3"), ("crate", "crate = \"..\"")],
        elsewhere: &[("version", "it belongs on the struct")],
    };

    fn messages(errors: Errors) -> Vec<String> {
        let text = errors.into_tokens().to_string();
        text.split("compile_error ! { \"")
            .skip(1)
            .map(|rest| rest.replace("\" }", "").replace(":: core ::", "").trim().to_owned())
            .collect()
    }

    #[test]
    fn every_mistake_is_reported() {
        let mut errors = Errors::default();
        let args =
            Args::parse(&SCHEMA, quote!(nam = "x", size = 1, size = 2, 7, colour, version = 2, name =), &mut errors);
        assert!(args.string("name", &mut errors).is_none());
        let expected = [
            "unknown option `nam` of `#[thing]`: did you mean `name`?",
            "`size` is given twice: remove one",
            "expected an option: `#[thing]` takes `name`, `size`, `crate`",
            "unknown option `colour` of `#[thing]`: it takes `name`, `size`, `crate`",
            "`version` is no option of this `#[thing]`: it belongs on the struct",
            "`name` wants a value: `name = \\\"..\\\"`",
        ];
        assert_eq!(messages(errors), expected);
    }

    #[test]
    fn integers_are_literals_in_range_or_expressions() {
        let read = |tokens| {
            let mut errors = Errors::default();
            let integer = Args::parse(&SCHEMA, tokens, &mut errors).integer("size", -1..=10, &mut errors);
            (integer, errors.count())
        };
        assert!(matches!(read(quote!(size = -1)), (Some(Integer::Literal(-1)), 0)));
        assert!(matches!(read(quote!(size = 0x0a)), (Some(Integer::Literal(10)), 0)));
        assert!(matches!(read(quote!(size = limits::SIZE)), (Some(Integer::Constant(_)), 0)));
        for wrong in [
            quote!(size = 11),
            quote!(size = -2),
            quote!(size = 99999999999999999999),
            quote!(size = "3"),
            quote!(size),
        ] {
            assert!(matches!(read(wrong), (None, 1)));
        }
    }

    #[test]
    fn durations_have_a_unit_and_are_above_zero() {
        for (text, millis) in [("500ms", 500), ("30s", 30_000), ("5m", 300_000), ("1h", 3_600_000)] {
            assert_eq!(parse_millis(text), Some(millis));
        }
        for text in ["", "5", "s", "0s", "-1s", "1.5s", "1 s", "1d", "99999999999999999999s", "9999999999999999999h"] {
            assert_eq!(parse_millis(text), None, "{text}");
        }
    }
}
