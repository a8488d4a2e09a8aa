//! Lists and sets: Kubernetes' functions, and cel-go's extensions (lists in version 3).

use std::cmp::Ordering;

use super::super::error::{Fault, NO_OVERLOAD};
use super::super::value::{MAX_ITEMS, Value, Work, compare, contains, equal};
use super::{Declaration, deep, guarded, one_list, operators, strings};

pub(super) const FUNCTIONS: &[Declaration] = &[
    guarded("isSorted", is_sorted, &[("list_{}_is_sorted_bool", "list({}).() -> bool")]),
    guarded(
        "min",
        |args| choose(args, "min", Ordering::Greater),
        &[("list_{}_min", "list({}).() -> {}")],
    ),
    guarded(
        "max",
        |args| choose(args, "max", Ordering::Less),
        &[("list_{}_max", "list({}).() -> {}")],
    ),
    guarded(
        "sum",
        sum,
        &[
            ("list_int_sum_int", "list(int).() -> int"),
            ("list_uint_sum_uint", "list(uint).() -> uint"),
            ("list_double_sum_double", "list(double).() -> double"),
            ("list_duration_sum_duration", "list(duration).() -> duration"),
        ],
    ),
    deep(
        "indexOf",
        |args, work| index_of(args, false, work),
        &[
            ("string_index_of_string", "string.(string) -> int"),
            ("string_index_of_string_int", "string.(string, int) -> int"),
            ("list_a_index_of_int", "list(A).(A) -> int"),
        ],
    ),
    deep(
        "lastIndexOf",
        |args, work| index_of(args, true, work),
        &[
            ("string_last_index_of_string", "string.(string) -> int"),
            ("string_last_index_of_string_int", "string.(string, int) -> int"),
            ("list_a_last_index_of_int", "list(A).(A) -> int"),
        ],
    ),
    guarded("slice", slice, &[("list_slice", "list(T).(int, int) -> list(T)")]),
    deep(
        "flatten",
        flatten,
        &[
            ("list_flatten", "list(list(T)).() -> list(T)"),
            ("list_flatten_int", "list(dyn).(int) -> list(dyn)"),
        ],
    ),
    deep("sort", sort, &[("list_{}_sort", "list({}).() -> list({})")]),
    deep(
        "@sortByAssociatedKeys",
        sort_by,
        &[("list_{}_sortByAssociatedKeys", "list(T).(list({})) -> list(T)")],
    ),
    guarded("lists.range", range, &[("lists_range", "int -> list(int)")]),
    guarded("reverse", reverse, &[("list_reverse", "list(T).() -> list(T)")]),
    deep("distinct", distinct, &[("list_distinct", "list(T).() -> list(T)")]),
    guarded(
        "first",
        |args| end(args, <[_]>::first),
        &[("list_first", "list(V).() -> optional(V)")],
    ),
    guarded("last", |args| end(args, <[_]>::last), &[("list_last", "list(V).() -> optional(V)")]),
    deep(
        "sets.contains",
        |args, work| sets(args, includes, work),
        &[("list_sets_contains_list", "list(T), list(T) -> bool")],
    ),
    deep(
        "sets.equivalent",
        |args, work| {
            sets(args, |a, b, work| Ok(includes(a, b, work)? && includes(b, a, work)?), work)
        },
        &[("list_sets_equivalent_list", "list(T), list(T) -> bool")],
    ),
    deep(
        "sets.intersects",
        |args, work| sets(args, intersects, work),
        &[("list_sets_intersects_list", "list(T), list(T) -> bool")],
    ),
];

fn is_ordered(value: &Value<'_>) -> bool {
    compare(value, value).is_ok() || matches!(value, Value::Double(_))
}

/// Returns the items if the first of them has an order, which decides whether the overload fits.
fn comparable<'v, 'a>(args: &'v [Value<'a>]) -> Result<&'v [Value<'a>], Fault> {
    let items = one_list(args)?;
    match items.first().is_none_or(is_ordered) {
        true => Ok(items),
        false => Err(Fault::Overload),
    }
}

fn is_sorted<'a>(args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    let items = comparable(args)?;
    for pair in items.windows(2) {
        if !is_ordered(&pair[1]) {
            return Err(NO_OVERLOAD);
        }
        if compare(&pair[0], &pair[1]).is_ok_and(Ordering::is_gt) {
            return Ok(Value::Bool(false));
        }
    }
    Ok(Value::Bool(true))
}

/// Returns the item to which no other compares by `worse`.
fn choose<'a>(args: &[Value<'a>], name: &str, worse: Ordering) -> Result<Value<'a>, Fault> {
    let mut items = comparable(args)?.iter();
    let empty = || Fault::text(format!("{name} called on empty list"));
    let mut best = items.next().ok_or_else(empty)?;
    for item in items {
        if !is_ordered(item) {
            return Err(NO_OVERLOAD);
        }
        if compare(best, item).is_ok_and(|order| order == worse) {
            best = item;
        }
    }
    Ok(best.clone())
}

fn sum<'a>(args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    let items = one_list(args)?;
    let zero = match items.first() {
        None | Some(Value::Int(_)) => Value::Int(0),
        Some(Value::Uint(_)) => Value::Uint(0),
        Some(Value::Double(_)) => Value::Double(0.0),
        Some(Value::Duration(_)) => Value::Duration(0),
        Some(_) => return Err(Fault::Overload),
    };
    items.iter().try_fold(zero, |total, item| operators::add(&[total, item.clone()]))
}

fn index_of<'a>(args: &[Value<'a>], last: bool, work: &mut Work) -> Result<Value<'a>, Fault> {
    let [Value::List(items), value] = args else { return strings::index_of(args, last) };
    let mut found = -1;
    for (index, item) in items.iter().enumerate() {
        match equal(item, value, work) {
            Err(Fault::Cost) => return Err(Fault::Cost),
            Ok(true) => {
                found = i64::try_from(index).unwrap_or(-1);
                if !last {
                    break;
                }
            }
            _ => {}
        }
    }
    Ok(Value::Int(found))
}

fn slice<'a>(args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    let [Value::List(items), Value::Int(start), Value::Int(end)] = args else {
        return Err(Fault::Overload);
    };
    let fail = |reason: String| Err(Fault::text(format!("cannot slice({start}, {end}), {reason}")));
    let (Ok(from), Ok(to)) = (usize::try_from(*start), usize::try_from(*end)) else {
        return fail("negative indexes not supported".to_owned());
    };
    if from > to {
        return fail("start index must be less than or equal to end index".to_owned());
    }
    match items.get(from..to) {
        Some(part) => Ok(Value::list(part.to_vec())),
        None => fail(format!("list is length {}", items.len())),
    }
}

fn flatten<'a>(args: &[Value<'a>], work: &mut Work) -> Result<Value<'a>, Fault> {
    let (items, depth) = match args {
        [Value::List(items)] => (items, 1),
        [Value::List(items), Value::Int(depth)] => (items, *depth),
        _ => return Err(Fault::Overload),
    };
    if depth < 0 {
        return Err(Fault::Fixed("level must be non-negative"));
    }
    let mut flat = Vec::new();
    flatten_into(items, depth, &mut flat, work)?;
    Ok(Value::list(flat))
}

fn flatten_into<'a>(
    items: &[Value<'a>],
    depth: i64,
    flat: &mut Vec<Value<'a>>,
    work: &mut Work,
) -> Result<(), Fault> {
    for item in items {
        work.spend(item.clone_work())?;
        match item {
            Value::List(inner) if depth > 0 => flatten_into(inner, depth - 1, flat, work)?,
            other if flat.len() < MAX_ITEMS => flat.push(other.clone()),
            _ => return Err(Fault::Cost),
        }
    }
    Ok(())
}

fn sort<'a>(args: &[Value<'a>], work: &mut Work) -> Result<Value<'a>, Fault> {
    let items = comparable(args)?;
    sorted(items, items, work)
}

fn sort_by<'a>(args: &[Value<'a>], work: &mut Work) -> Result<Value<'a>, Fault> {
    let [Value::List(items), Value::List(keys)] = args else { return Err(Fault::Overload) };
    if items.len() != keys.len() || keys.first().is_some_and(|key| !is_ordered(key)) {
        return Err(Fault::Overload);
    }
    sorted(items, keys, work)
}

fn sorted<'a>(
    items: &[Value<'a>],
    keys: &[Value<'a>],
    work: &mut Work,
) -> Result<Value<'a>, Fault> {
    // Each key is compared about as often as the length can be halved.
    let rounds = u64::from(keys.len().checked_ilog2().unwrap_or(0)) + 1;
    work.spend(keys.iter().map(Value::read_work).sum::<u64>().saturating_mul(rounds))?;
    let name = keys.first().map(Value::type_name);
    if keys.iter().any(|key| Some(key.type_name()) != name) {
        return Err(Fault::Fixed("list elements must have the same type"));
    }
    let mut order: Vec<usize> = (0..items.len()).collect();
    // A stable sort; an order that NaN makes inconsistent must not panic.
    let rank = |value: &Value<'_>| matches!(value, Value::Double(number) if number.is_nan());
    order.sort_by(|a, b| {
        let (a, b) = (&keys[*a], &keys[*b]);
        compare(a, b).unwrap_or_else(|_| rank(a).cmp(&rank(b)))
    });
    Ok(Value::list(order.into_iter().map(|index| items[index].clone()).collect()))
}

fn range<'a>(args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    let [Value::Int(end)] = args else { return Err(Fault::Overload) };
    if usize::try_from(*end).is_ok_and(|end| end > MAX_ITEMS) {
        return Err(Fault::Cost);
    }
    Ok(Value::list((0..*end).map(Value::Int).collect()))
}

fn reverse<'a>(args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    Ok(Value::list(one_list(args)?.iter().rev().cloned().collect()))
}

fn distinct<'a>(args: &[Value<'a>], work: &mut Work) -> Result<Value<'a>, Fault> {
    let mut kept: Vec<Value<'a>> = Vec::new();
    for item in one_list(args)? {
        if !contains(&kept, item, work)? {
            kept.push(item.clone());
        }
    }
    Ok(Value::list(kept))
}

fn end<'a>(
    args: &[Value<'a>],
    pick: for<'v> fn(&'v [Value<'a>]) -> Option<&'v Value<'a>>,
) -> Result<Value<'a>, Fault> {
    Ok(pick(one_list(args)?).cloned().map_or(Value::Optional(None), Value::some))
}

fn sets<'a>(
    args: &[Value<'a>],
    test: impl FnOnce(&[Value<'a>], &[Value<'a>], &mut Work) -> Result<bool, Fault>,
    work: &mut Work,
) -> Result<Value<'a>, Fault> {
    match args {
        [Value::List(a), Value::List(b)] => Ok(Value::Bool(test(a, b, work)?)),
        _ => Err(Fault::Overload),
    }
}

fn includes(all: &[Value<'_>], some: &[Value<'_>], work: &mut Work) -> Result<bool, Fault> {
    for item in some {
        if !contains(all, item, work)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn intersects(a: &[Value<'_>], b: &[Value<'_>], work: &mut Work) -> Result<bool, Fault> {
    for item in a {
        if contains(b, item, work)? {
            return Ok(true);
        }
    }
    Ok(false)
}
