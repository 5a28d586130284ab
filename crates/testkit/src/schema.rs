//! Whether JSON is what its schema says: the part of JSON Schema that ours uses, and nothing else.

use serde_json::Value;

/// The schema of what `bench` and `lab` write.
pub fn bench() -> Value {
    serde_json::from_str(include_str!("../../../docs/bench.schema.json")).unwrap()
}

/// Where and how `value` is not what `schema` says.
pub fn check(root: &Value, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    let wrong = |what: String| Err(format!("{at}: {what}"));
    for (word, rule) in schema.as_object().unwrap() {
        match word.as_str() {
            "$schema" | "$defs" | "title" | "description" | "required" | "additionalProperties" => {
            }
            "$ref" => {
                let place = rule.as_str().unwrap().strip_prefix('#').unwrap();
                let target = root.pointer(place).unwrap_or_else(|| panic!("no {place}"));
                check(root, target, value, at)?;
            }
            "type" => {
                let is = match rule.as_str().unwrap() {
                    "object" => value.is_object(),
                    "array" => value.is_array(),
                    "string" => value.is_string(),
                    "boolean" => value.is_boolean(),
                    "null" => value.is_null(),
                    "number" => value.is_number(),
                    "integer" => value.is_i64() || value.is_u64(),
                    other => panic!("type {other}"),
                };
                if !is {
                    return wrong(format!("{value} is no {rule}"));
                }
            }
            "const" if value != rule => return wrong(format!("{value}, not {rule}")),
            "const" => {}
            "enum" if !rule.as_array().unwrap().contains(value) => {
                return wrong(format!("{value} is none of {rule}"));
            }
            "enum" => {}
            "minimum" if value.as_f64() < rule.as_f64() => {
                return wrong(format!("{value} < {rule}"));
            }
            "minimum" => {}
            "items" => {
                for (n, item) in value.as_array().into_iter().flatten().enumerate() {
                    check(root, rule, item, &format!("{at}/{n}"))?;
                }
            }
            "properties" => properties(root, schema, value, at)?,
            "oneOf" => {
                let all = rule.as_array().unwrap();
                let tried = all.iter().map(|one| check(root, one, value, at));
                let (good, bad): (Vec<_>, Vec<_>) = tried.partition(Result::is_ok);
                if good.len() != 1 {
                    return wrong(format!("{} of {} fit: {bad:?}", good.len(), all.len()));
                }
            }
            other => panic!("{other} is not understood here"),
        }
    }
    Ok(())
}

fn properties(root: &Value, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    let Some(found) = value.as_object() else {
        return Ok(());
    };
    let known = schema["properties"].as_object().unwrap();
    for name in schema["required"].as_array().into_iter().flatten() {
        if !found.contains_key(name.as_str().unwrap()) {
            return Err(format!("{at}: {name} is missing"));
        }
    }
    for (name, value) in found {
        match known.get(name) {
            Some(rule) => check(root, rule, value, &format!("{at}/{name}"))?,
            None if schema["additionalProperties"] == false => {
                return Err(format!("{at}: {name} is not known"));
            }
            None => {}
        }
    }
    Ok(())
}
