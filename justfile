# Recipes of the project. `./dev RECIPE` prepares the environment and runs one of these.

set positional-arguments
set shell := ["sh", "-euc"]

bin := justfile_directory() / ".venv/bin"
python := bin / "python"
# Four workers at least: much of a test is waiting for processes and intervals. Eight at most: they are real ones.
workers := `n=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2); [ "$n" -ge 4 ] || n=4; [ "$n" -le 8 ] || n=8; echo "$n"`

# See a message wake an idle host, be fetched and acknowledged
[no-exit-message]
demo *args:
    @"{{ python }}" -m interlink_lab.demo "$@"

# Run the tests (arguments go to pytest)
[no-exit-message]
test *args:
    @"{{ python }}" -m pytest -n {{ workers }} --dist worksteal "$@"

# Run the tests with containers and the real hosts (INTERLINK_REQUIRE_HOSTS=1: nothing may be missing)
[no-exit-message]
host-test *args:
    @where=host_tests; for arg in "$@"; do case "$arg" in host_tests/*) where= ;; esac; done; \
    "{{ python }}" -m pytest $where -n {{ workers }} --dist worksteal "$@" || { \
        code=$?; \
        [ "$code" -eq 5 ] || exit "$code"; \
        echo "host-test: host_tests has no test for this call"; \
        [ "${INTERLINK_REQUIRE_HOSTS:-}" != 1 ]; \
    }

# Lab commands: scenarios, faults, timelines
[no-exit-message]
lab *args:
    @"{{ bin }}/interlink-lab" "$@"

# Measure (arguments choose what)
[no-exit-message]
bench *args:
    @"{{ python }}" -m interlink_lab.bench "$@"

# Style, types, floors, and what must not be in a repository
[no-exit-message]
lint *args:
    @"{{ python }}" -m interlink_lab.tools.lint "$@"

# Renew docs/configuration.md and docs/spec.md: which tests prove which requirement (--check, --require ID,...)
[no-exit-message]
spec *args:
    @"{{ python }}" -m interlink_lab.tools.settings_doc
    @"{{ python }}" -m interlink_lab.tools.spec "$@"

# Seed one bug at a time and see the tests find it (--only NAME,...)
[no-exit-message]
mutate *args:
    @"{{ python }}" -m interlink_lab.tools.mutate "$@"

# Property tests with new random examples, many more than in `test`
[no-exit-message]
fuzz *args:
    @"{{ python }}" -m pytest -n {{ workers }} -m hypothesis --hypothesis-profile=fuzz --timeout=1500 "$@"

# Everything that a change has to pass, as the public CI runs it
[no-exit-message]
ci:
    @bash .ci/run

# Install the real hosts and the peer of host_tests/hosts.toml into .cache/hosts
[no-exit-message]
hosts-install *args:
    @"{{ python }}" -m interlink_lab.tools.hosts "$@"
