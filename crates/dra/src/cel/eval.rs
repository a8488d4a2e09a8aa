//! Evaluates a program for a device.
//!
//! A value that failed is passed on as an error, which `||`, `&&` and comprehensions may absorb; exceeding the cost limit
//! ends the evaluation. The order of evaluation and the charges are cel-go's.

use std::borrow::Cow;
use std::sync::Arc;

use super::cost::{self, Rule};
use super::device::Given;
use super::error::{Fault, NO_OVERLOAD};
use super::functions::Style;
use super::plan::{Attr, Base, Call, FoldNode, Node, Qualifier, QualifierKey};
use super::value::{Key, MAX_ITEMS, Map, Value, Work, equal, text_work};

/// A value, or why it failed.
type Outcome<'a> = Result<Value<'a>, Fault>;

/// Runs a program, and returns its value, its cost and its work.
pub(super) fn run<'a>(
    root: &'a Node,
    slots: usize,
    device: &'a Given<'a>,
    limit: u64,
) -> (Outcome<'a>, u64, u64) {
    let slots = (0..slots).map(|_| Slot::Empty).collect();
    let mut machine = Machine { device, slots, cost: 0, limit, work: Work::new() };
    let result = machine.eval(root);
    (result, machine.cost, machine.work.spent())
}

struct Machine<'a> {
    device: &'a Given<'a>,
    slots: Vec<Slot<'a>>,
    cost: u64,
    limit: u64,
    work: Work,
}

enum Slot<'a> {
    Empty,
    /// An accumulator that is evaluated when it is first read.
    Lazy(&'a Node),
    /// Never [`Fault::Cost`].
    Set(Outcome<'a>),
}

/// Returns a value or an error that can be absorbed. The outer error is [`Fault::Cost`], which cannot.
fn absorb<T>(result: Result<T, Fault>) -> Result<Result<T, Fault>, Fault> {
    match result {
        Err(Fault::Cost) => Err(Fault::Cost),
        other => Ok(other),
    }
}

impl<'a> Machine<'a> {
    fn charge(&mut self, cost: u64) -> Result<(), Fault> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.limit { Err(Fault::Cost) } else { Ok(()) }
    }

    fn eval(&mut self, node: &'a Node) -> Outcome<'a> {
        self.work.step()?;
        match node {
            Node::Const(value) => Ok(value.borrow()),
            Node::Attr(attr) => self.attr(attr),
            Node::And(terms) => self.logic(terms, false),
            Node::Or(terms) => self.logic(terms, true),
            Node::Equal { sides, negated } => self.equal(sides, *negated),
            Node::Member(value, set) => {
                let value = self.eval(value)?;
                Ok(Value::Bool(Key::of(&value).is_some_and(|key| set.contains(&key))))
            }
            Node::NotStrictlyFalse(value) => {
                let value = absorb(self.eval(value))?;
                self.charge(1)?;
                Ok(Value::Bool(!matches!(value, Ok(Value::Bool(false)))))
            }
            Node::OrElse { sides, unwrap } => match self.eval(&sides[0])? {
                Value::Optional(Some(value)) if *unwrap => {
                    self.work.spend(value.clone_work())?;
                    Ok(Arc::unwrap_or_clone(value))
                }
                Value::Optional(None) => self.eval(&sides[1]),
                other => Ok(other),
            },
            Node::Constant(value) => {
                self.charge(1)?;
                Ok(value.borrow())
            }
            Node::Call(call) => self.call(call),
            Node::List(items) => {
                let list = absorb(self.list(items))?;
                self.charge(cost::LIST)?;
                list
            }
            Node::Map(entries) => {
                let map = absorb(self.map(entries))?;
                self.charge(cost::MAP)?;
                map
            }
            Node::Fold(fold) => self.fold(fold),
            Node::Append(slot, items) => self.append(*slot, items),
            Node::Insert(slot, entry) => self.insert(*slot, entry),
        }
    }

    fn attr(&mut self, attr: &'a Attr) -> Outcome<'a> {
        let value = absorb(self.resolve(attr))?;
        if attr.test {
            return value.map(|value| match value {
                Value::Optional(value) => Value::Bool(value.is_some()),
                other => other,
            });
        }
        if !matches!(attr.base, Base::Condition(_)) {
            self.charge(1)?;
        }
        value
    }

    /// Reads an attribute without the charge for it, but with those for its qualifiers.
    fn resolve(&mut self, attr: &'a Attr) -> Outcome<'a> {
        let base = match &attr.base {
            Base::Device => Value::Device(self.device),
            Base::Variable(slot) => self.variable(*slot)?,
            Base::Node(node) => self.eval(node)?,
            Base::Condition(parts) => {
                let [condition, then, otherwise] = &**parts;
                match self.eval(condition)? {
                    Value::Bool(true) => self.branch(then)?,
                    Value::Bool(false) => self.branch(otherwise)?,
                    _ => return Err(NO_OVERLOAD),
                }
            }
        };
        match attr.qualifiers.is_empty() {
            true => Ok(base),
            false => self.qualify(base, &attr.qualifiers),
        }
    }

    fn branch(&mut self, node: &'a Node) -> Outcome<'a> {
        match node {
            Node::Attr(attr) if !attr.test => self.resolve(attr),
            other => self.eval(other),
        }
    }

    fn qualify(&mut self, mut value: Value<'a>, qualifiers: &'a [Qualifier]) -> Outcome<'a> {
        let mut optional = false;
        match value {
            Value::Optional(None) => return Ok(value),
            Value::Optional(Some(inner)) => {
                self.work.spend(inner.clone_work())?;
                value = Arc::unwrap_or_clone(inner);
                optional = true;
            }
            _ => {}
        }
        for qualifier in qualifiers {
            optional |= qualifier.optional;
            let computed;
            let key = match &qualifier.key {
                QualifierKey::Const(key) => Ok(key),
                QualifierKey::Node(node) => match absorb(self.branch(node))? {
                    Ok(key) => {
                        self.work.spend(key.read_work())?;
                        computed = key;
                        Ok(&computed)
                    }
                    Err(fault) => Err(fault),
                },
            };
            let found = match (&value, &qualifier.key) {
                // The common case, which copies no name.
                (Value::Domains(field, device), QualifierKey::Const(Value::Str(domain))) => {
                    Ok(Ok(Value::Domain(*field, device, Cow::Borrowed(domain))))
                }
                _ => key.and_then(|key| {
                    lookup(&value, key).map(|found| found.ok_or_else(|| missing(&value, key)))
                }),
            };
            let found = match found {
                Ok(found) => found,
                Err(fault) => {
                    if !optional {
                        self.charge(1)?;
                    }
                    return Err(fault);
                }
            };
            match (found, optional) {
                (Err(_), true) => return Ok(Value::Optional(None)),
                (found, false) if qualifier.test => {
                    self.charge(1)?;
                    value = Value::Bool(found.is_ok());
                }
                (Ok(found), _) => {
                    self.charge(1)?;
                    self.work.spend(found.clone_work())?;
                    value = found;
                }
                (Err(fault), false) => {
                    self.charge(1)?;
                    return Err(fault);
                }
            }
        }
        Ok(if optional { Value::some(value) } else { value })
    }

    fn variable(&mut self, slot: usize) -> Outcome<'a> {
        if let Slot::Lazy(init) = self.slots[slot] {
            self.slots[slot] = Slot::Set(absorb(self.eval(init))?);
        }
        match &self.slots[slot] {
            Slot::Set(value) => {
                self.work.spend(value.as_ref().map_or(1, Value::clone_work))?;
                value.clone()
            }
            Slot::Empty | Slot::Lazy(_) => Err(NO_OVERLOAD),
        }
    }

    /// `&&` and `||`: the value that decides wins over errors.
    fn logic(&mut self, terms: &'a [Node; 2], decisive: bool) -> Outcome<'a> {
        let mut failure = None;
        for term in terms {
            match absorb(self.eval(term))? {
                Ok(Value::Bool(value)) if value == decisive => return Ok(Value::Bool(value)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => failure = failure.or(Some(NO_OVERLOAD)),
                Err(fault) => failure = failure.or(Some(fault)),
            }
        }
        failure.map_or(Ok(Value::Bool(!decisive)), Err)
    }

    fn equal(&mut self, sides: &'a [Node; 2], negated: bool) -> Outcome<'a> {
        let left = absorb(self.eval(&sides[0]))?;
        let right = absorb(self.eval(&sides[1]))?;
        let cost = self.sizes(&[left.as_ref().ok(), right.as_ref().ok()], |sides, work| {
            cost::equality(sides[0], sides[1], negated, work)
        })?;
        self.charge(cost)?;
        let (left, right) = (left?, right?);
        let result = absorb(equal(&left, &right, &mut self.work))?;
        match negated {
            // Values that cannot be compared are not equal.
            true => Ok(Value::Bool(!matches!(result, Ok(true)))),
            false => result.map(Value::Bool),
        }
    }

    fn call(&mut self, call: &'a Call) -> Outcome<'a> {
        match call.args.as_slice() {
            [] => {
                self.charge(1)?;
                self.run(call, &[])
            }
            [arg] => match absorb(self.eval(arg))? {
                Ok(value) => self.run_charged(call, &[value]),
                Err(fault) => self.failed(call, &[None], fault),
            },
            [left, right] => {
                let left = match absorb(self.eval(left))? {
                    Err(fault) if !call.eager => return Err(fault),
                    left => left,
                };
                match (left, absorb(self.eval(right))?) {
                    (Ok(left), Ok(right)) => self.run_charged(call, &[left, right]),
                    (left, right) => {
                        let args = [left.as_ref().ok(), right.as_ref().ok()];
                        let cost = self.sizes(&args, |args, work| call.rule.before(args, work))?;
                        self.charge(cost + call.rule.after(None))?;
                        left.and(right)
                    }
                }
            }
            args => {
                let mut values = Vec::with_capacity(args.len());
                for arg in args {
                    match absorb(self.eval(arg))? {
                        Ok(value) => values.push(value),
                        Err(fault) if values.len() + 1 == args.len() => {
                            let mut known: Vec<Option<&Value<'_>>> =
                                values.iter().map(Some).collect();
                            known.push(None);
                            return self.failed(call, &known, fault);
                        }
                        Err(fault) => return Err(fault),
                    }
                }
                self.run_charged(call, &values)
            }
        }
    }

    /// Charges for a call whose last argument failed.
    fn failed(&mut self, call: &'a Call, args: &[Option<&Value<'a>>], fault: Fault) -> Outcome<'a> {
        let cost = self.sizes(args, |args, work| call.rule.before(args, work))?;
        self.charge(cost + call.rule.after(None))?;
        Err(fault)
    }

    /// Computes a cost from the sizes of values, of which those of text have to be counted.
    fn sizes(
        &mut self,
        values: &[Option<&Value<'_>>],
        cost: impl FnOnce(&[Option<&Value<'_>>], &mut Work) -> Result<u64, Fault>,
    ) -> Result<u64, Fault> {
        for value in values.iter().flatten() {
            if let Value::Str(text) = value {
                self.work.spend(text_work(text.len()))?;
            }
        }
        cost(values, &mut self.work)
    }

    fn run_charged(&mut self, call: &'a Call, args: &[Value<'a>]) -> Outcome<'a> {
        for arg in args {
            self.work.spend(arg.read_work())?;
        }
        let work = &mut self.work;
        let cost = match (call.rule, args) {
            (Rule::One, _) => 1,
            (rule, [a]) => rule.before(&[Some(a)], work)?,
            (rule, [a, b]) => rule.before(&[Some(a), Some(b)], work)?,
            (rule, args) => {
                let args: Vec<Option<&Value<'_>>> = args.iter().map(Some).collect();
                rule.before(&args, work)?
            }
        };
        self.charge(cost)?;
        let result = absorb(self.run(call, args))?;
        if let Ok(result) = &result {
            self.work.spend(result.read_work())?;
        }
        self.charge(call.rule.after(result.as_ref().ok()))?;
        result
    }

    fn run(&mut self, call: &'a Call, args: &[Value<'a>]) -> Outcome<'a> {
        let result = match &call.regex {
            Some(pattern) => super::functions::search(call.name, pattern, args, &mut self.work),
            None => call.run.run(args, &mut self.work),
        };
        match result {
            Err(Fault::Overload) => Err(no_overload(call, args)),
            other => other,
        }
    }

    fn list(&mut self, items: &'a [(Node, bool)]) -> Outcome<'a> {
        let mut values = Vec::with_capacity(items.len());
        for (item, optional) in items {
            match (self.eval(item)?, *optional) {
                (value, false) => values.push(value),
                (Value::Optional(value), true) => {
                    values.extend(value.map(Arc::unwrap_or_clone));
                }
                (value, true) => {
                    let text = super::functions::display(&value);
                    return Err(Fault::text(format!(
                        "cannot initialize optional list element from non-optional value {text}"
                    )));
                }
            }
        }
        Ok(Value::list(values))
    }

    fn map(&mut self, entries: &'a [(Node, Node, bool)]) -> Outcome<'a> {
        let mut map = Map::new();
        for (key, value, optional) in entries {
            let key = self.eval(key)?;
            let value = self.eval(value)?;
            self.work.spend(key.clone_work())?;
            let index = Key::owned(&key).ok_or(Fault::Fixed("unsupported key type"))?;
            match (value, *optional) {
                (Value::Optional(None), true) => {
                    map.remove(&index);
                }
                (Value::Optional(Some(value)), true) => {
                    map.insert(index, (key, Arc::unwrap_or_clone(value)));
                }
                (value, true) => {
                    let (key, value) =
                        (super::functions::display(&key), super::functions::display(&value));
                    return Err(Fault::text(format!(
                        "cannot initialize optional entry '{key}' from non-optional value {value}"
                    )));
                }
                (value, false) => {
                    map.insert(index, (key, value));
                }
            }
        }
        Ok(Value::Map(Arc::new(map)))
    }

    fn fold(&mut self, fold: &'a FoldNode) -> Outcome<'a> {
        let range = self.eval(&fold.range)?;
        self.slots[fold.accu] = Slot::Lazy(&fold.init);
        match &range {
            Value::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.work.spend(item.clone_work())?;
                    let index = Value::Int(i64::try_from(index).unwrap_or(i64::MAX));
                    let (first, second) = match fold.iter2 {
                        Some(_) => (index, item.clone()),
                        None => (item.clone(), Value::Null),
                    };
                    if !self.iterate(fold, first, second)? {
                        break;
                    }
                }
            }
            other => match self.entries(other)? {
                Some(entries) => {
                    for (key, value) in entries {
                        if !self.iterate(fold, key, value)? {
                            break;
                        }
                    }
                }
                None => {
                    let ty = go_type(other);
                    return Err(Fault::text(if fold.iter2.is_some() {
                        format!("unsupported comprehension range type: {ty}")
                    } else {
                        format!("got '{ty}', expected iterable type")
                    }));
                }
            },
        }
        let result = self.eval(&fold.result);
        self.slots[fold.accu] = Slot::Empty;
        result
    }

    fn entries(&mut self, value: &Value<'a>) -> Result<Option<Vec<(Value<'a>, Value<'a>)>>, Fault> {
        self.work.spend(value.read_work())?;
        Ok(value.entries())
    }

    /// Runs a step of a comprehension, and returns `false` if its condition does not hold.
    fn iterate(
        &mut self,
        fold: &'a FoldNode,
        first: Value<'a>,
        second: Value<'a>,
    ) -> Result<bool, Fault> {
        self.slots[fold.iter] = Slot::Set(Ok(first));
        if let Some(slot) = fold.iter2 {
            self.slots[slot] = Slot::Set(Ok(second));
        }
        if let Ok(Value::Bool(false)) = absorb(self.eval(&fold.cond))? {
            return Ok(false);
        }
        self.slots[fold.accu] = Slot::Set(absorb(self.eval(&fold.step))?);
        Ok(true)
    }

    /// Takes an accumulator out of its slot, so that it can be changed in place.
    fn take(&mut self, slot: usize) -> Outcome<'a> {
        self.charge(1)?;
        match std::mem::replace(&mut self.slots[slot], Slot::Empty) {
            Slot::Set(value) => value,
            Slot::Lazy(init) => self.eval(init),
            Slot::Empty => Err(NO_OVERLOAD),
        }
    }

    fn append(&mut self, slot: usize, items: &'a Node) -> Outcome<'a> {
        let list = absorb(self.take(slot))?;
        let items = absorb(self.eval(items))?;
        self.charge(1)?;
        let (Value::List(mut list), Value::List(items)) = (list?, items?) else {
            return Err(NO_OVERLOAD);
        };
        if list.len() + items.len() > MAX_ITEMS {
            return Err(Fault::Cost);
        }
        self.work.spend(items.iter().map(Value::clone_work).sum())?;
        Arc::make_mut(&mut list).extend(items.iter().cloned());
        Ok(Value::List(list))
    }

    fn insert(&mut self, slot: usize, entry: &'a [Node; 2]) -> Outcome<'a> {
        let map = self.take(slot)?;
        let key = self.eval(&entry[0])?;
        let value = absorb(self.eval(&entry[1]))?;
        self.charge(1)?;
        let value = value?;
        let Value::Map(mut map) = map else { return Err(NO_OVERLOAD) };
        self.work.spend(key.clone_work() + value.clone_work())?;
        super::functions::insert(Arc::make_mut(&mut map), vec![(key, value)])?;
        Ok(Value::Map(map))
    }
}

/// Selects from a value. The error is for a key that the value cannot have.
fn lookup<'a>(value: &Value<'a>, key: &Value<'_>) -> Result<Option<Value<'a>>, Fault> {
    let Value::List(items) = value else { return Ok(value.find(key)) };
    let index = match key {
        Value::Int(index) => usize::try_from(*index).ok(),
        Value::Uint(index) => usize::try_from(*index).ok(),
        Value::Double(index) if index.trunc() == *index => {
            Some(*index as i64).and_then(|index| usize::try_from(index).ok())
        }
        other => {
            return Err(Fault::text(format!(
                "unsupported index type '{}' in list",
                other.type_name()
            )));
        }
    };
    Ok(index.and_then(|index| items.get(index)).cloned())
}

fn missing(value: &Value<'_>, key: &Value<'_>) -> Fault {
    let text = super::functions::display(key);
    Fault::text(match value {
        Value::List(_) => format!("index out of bounds: {text}"),
        _ => format!("no such key: {text}"),
    })
}

fn no_overload(call: &Call, args: &[Value<'_>]) -> Fault {
    let name = call.name;
    match call.style {
        Style::Operator => Fault::text(format!("no such overload: {name}")),
        Style::Guarded => {
            let types: Vec<&str> = args.iter().map(Value::type_name).collect();
            Fault::text(format!("no such overload: {name}({})", types.join(", ")))
        }
    }
}

/// Returns the name that Go prints for the type of a value.
fn go_type(value: &Value<'_>) -> Cow<'static, str> {
    Cow::Borrowed(match value {
        Value::Null => "types.Null",
        Value::Bool(_) => "types.Bool",
        Value::Int(_) => "types.Int",
        Value::Uint(_) => "types.Uint",
        Value::Double(_) => "types.Double",
        Value::Str(_) => "types.String",
        Value::Bytes(_) => "types.Bytes",
        Value::Duration(_) => "types.Duration",
        Value::Timestamp(_) => "types.Timestamp",
        Value::Optional(_) => "*types.Optional",
        Value::Quantity(_) => "cel.Quantity",
        Value::Version(_) => "cel.Semver",
        Value::Ip(_) => "cel.IP",
        Value::Cidr(_) => "cel.CIDR",
        Value::Url(_) => "cel.URL",
        Value::Format(_) => "cel.Format",
        other => other.type_name(),
    })
}
