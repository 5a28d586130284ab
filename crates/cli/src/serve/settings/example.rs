//! A configuration file with every setting, made from the flags and their help.

use std::fmt::Write;

use crate::serve::product::entries;
use crate::serve::settings::schema::Setting;
use crate::serve::settings::sources::schema;

/// Columns at which comments of the file are wrapped.
const WIDTH: usize = 100;

const HEAD: &str = "\
# Settings of `tidewire serve`: every flag, under the same name and with the same meaning. All are commented out.
#
#   tidewire serve --config tidewire.toml
#   tidewire config check tidewire.toml     # what is wrong with it, line by line
#   tidewire config example                 # prints this file
#
# A flag goes before the environment, and the environment before this file. A variable has the name of the flag behind
# TIDEWIRE_, such as TIDEWIRE_KV_MAXMEMORY for --kv-maxmemory; where a flag may be repeated, blanks stand between values.
#
# A setting stands at the top, or in the table of its section, where what the name has in common with that of the table
# may be left out: `kv-maxmemory = \"1GiB\"` is the same as `maxmemory = \"1GiB\"` in [kv]. Sizes are bytes or texts such as
# \"64MiB\", times are seconds or texts such as \"500ms\". Where a flag may be repeated, there may be a list.
";

const LISTENERS: &str = "\
# A listener with what is said for it only, instead of a text in `listen`; proxy-from and the rules of admission are as
# above. mode and owner are for the file of a Unix socket.
#[[listen]]
#service = \"kv/resp\"
#at = \"0.0.0.0:6390\"
#tls = true
#tls-cert = \"other.pem\"
#tls-key = \"other.key\"
#tls-client-ca = \"clients.pem\"
#proxy-from = [\"10.0.0.0/8\"]
#max-connections = 1000
#max-per-address = 100
#max-per-prefix = 1000
#accept-rate = \"1000/s\"
#accept-rate-per-address = \"10/s\"
#allow = [\"10.0.0.0/8\"]
#deny = [\"10.9.0.0/16\"]
#[[listen]]
#service = \"kv/resp\"
#at = \"unix:/run/tidewire/kv.sock\"
#mode = \"0660\"
#owner = \"0:0\"
";

/// The file.
pub(crate) fn example() -> String {
    let schema = schema();
    let mut text = HEAD.to_owned();
    let mut section = None;
    for setting in schema.settings() {
        if setting.table != section {
            section.clone_from(&setting.table);
            let name = section.as_deref().unwrap_or("server");
            let _ = write!(text, "\n# ---- [{name}] ----\n");
        }
        text.push('\n');
        for line in wrapped(&setting.help()) {
            let _ = writeln!(text, "# {line}");
        }
        let _ = writeln!(text, "#{} = {}", setting.name, value(setting));
    }
    text += "\n# ---- In this file alone ----\n";
    let keys = entries().iter().flat_map(|entry| entry.keys);
    let (tables, values): (Vec<&str>, Vec<&str>) = keys
        .map(|key| key.example)
        .partition(|example| example.contains("#[["));
    // No value may stand behind a table.
    for beside in values.into_iter().chain([LISTENERS]).chain(tables) {
        let _ = write!(text, "\n{beside}");
    }
    text
}

/// The default, else what stands for a value.
fn value(setting: &Setting) -> String {
    if setting.is_switch() {
        return "true".into();
    }
    let value = setting.default().unwrap_or(setting.value_name().into());
    let written = match value.parse::<u64>() {
        Ok(number) => number.to_string(),
        Err(_) => format!("{value:?}"),
    };
    match setting.repeats() {
        true => format!("[{written}]"),
        false => written,
    }
}

fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("there is one");
        if last.is_empty() {
            word.clone_into(last);
        } else if last.len() + 1 + word.len() <= WIDTH {
            last.push(' ');
            last.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::settings::file::File;

    /// `tidewire config example > tidewire.toml` at the root of the repository makes it so.
    #[test]
    fn it_is_the_file_that_is_shipped() {
        let shipped = include_str!("../../../../../tidewire.toml");
        assert_eq!(shipped, example());
    }

    /// With every value let in, nothing of it is unknown; and nothing that there is is missing.
    #[test]
    fn every_line_of_it_is_a_setting() {
        let schema = schema();
        let text: String = example()
            .lines()
            .filter(|line| !line.starts_with("# ") && *line != "#")
            .map(|line| format!("{}\n", line.trim_start_matches('#')))
            .collect();
        // A listener is said once, as a text or as tables.
        let text = text.replacen("listen = [\"SERVICE[/MODE]=ADDR\"]\n", "", 1);
        let (file, problems) = File::parse(schema, &text);
        for problem in &problems {
            let of_value = problem.what.starts_with("invalid value");
            assert!(of_value, "{problem}");
        }
        assert_eq!(file.beside.len(), 3);
        let known = file.said.len() + problems.len();
        assert_eq!(known, schema.settings().len() - 1);
    }
}
