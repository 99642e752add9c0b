"""Where every file is (T1), and which session ids and identities may become part of a path."""

import os
import pwd

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlink.errors import SetupError, UsageError
from interlink.session.config import make_config
from interlink.state import paths
from interlink.state.paths import Layout, check_identity, check_session

KEY = "O2onvM62pC1io6jQKm8Nc2UyFXcd4kOmOsBIoYtZ2ik"


@pytest.mark.req("T1")
def test_state_root_follows_the_environment() -> None:
    assert paths.state_root({"XDG_STATE_HOME": "/x/s", "HOME": "/h"}) == "/x/s/interlink"
    assert paths.state_root({"HOME": "/h"}) == "/h/.local/state/interlink"
    assert paths.state_root({"XDG_STATE_HOME": "", "HOME": "/h"}) == "/h/.local/state/interlink"
    assert paths.config_dir({"XDG_CONFIG_HOME": "/x/c", "HOME": "/h"}) == "/x/c/interlink"
    assert paths.config_dir({"HOME": "/h"}) == "/h/.config/interlink"


@pytest.mark.req("T1")
def test_without_home_the_system_says_where_it_is() -> None:
    real = pwd.getpwuid(os.getuid()).pw_dir
    assert paths.home({}) == paths.home({"HOME": ""}) == real
    assert paths.state_root({}) == os.path.join(real, ".local/state/interlink")


@pytest.mark.req("M29")
@pytest.mark.parametrize("environ", [{"XDG_STATE_HOME": "state"}, {"XDG_STATE_HOME": "./x"}, {"HOME": "h"}])
def test_a_relative_root_is_refused(environ: dict[str, str]) -> None:
    with pytest.raises(SetupError, match="relative: set XDG_STATE_HOME to an absolute path"):
        paths.state_root(environ)


def test_a_tilde_that_no_shell_made_whole() -> None:
    environ = {"HOME": "/h/a"}
    assert paths.expand("~/token", environ) == "/h/a/token"
    assert paths.expand("~", environ) == "/h/a"
    for kept in ("/x/~/y", "~other/y", "y~", "codex", ""):
        assert paths.expand(kept, environ) == kept
    config = make_config({"token_file": "~/t"}, {**environ, "INTERLINK_KEY": "~/k", "INTERLINK_PEERS": "/p"})
    assert (config.token_file, config.key_path, config.peers_path) == ("/h/a/t", "/h/a/k", "/p")


@pytest.mark.req("T1")
def test_layout_names_each_documented_path() -> None:
    at = Layout("/r")
    assert at.mailbox(KEY, "s1") == f"/r/mailbox/{KEY}/s1.json"
    assert at.mailbox_lock(KEY, "s1") == f"/r/mailbox/{KEY}/s1.lock"
    assert at.notifier_lock(KEY, "s1") == f"/r/mailbox/{KEY}/s1.notifier-lock"
    assert at.inbox("s1") == "/r/inbox/s1.jsonl"
    for part in ("cursor", "lock", "io-lock"):
        assert at.inbox("s1", part) == f"/r/inbox/s1.{part}"
    assert at.pairing(KEY, "s1") == f"/r/pairing/{KEY}/s1.json"
    assert at.failed(KEY, "s1") == f"/r/failed/{KEY}/s1.json"
    assert at.task_dir("s1") == "/r/task/s1"


@pytest.mark.parametrize("session", ["a", "A.b_c-9", "x" * 128, "0", "-", "a..b", "c0ffee12"])
def test_good_session_ids(session: str) -> None:
    assert check_session(session) == session


@pytest.mark.parametrize(
    "session", ["", ".", "..", ".hidden", "x" * 129, "a/b", "../x", "a\\b", "a b", "é", "a\n", "a\0", "a:b"]
)
def test_bad_session_ids_are_refused_with_the_rule(session: str) -> None:
    with pytest.raises(UsageError, match=r"use 1 to 128 of A-Z a-z 0-9 \. _ -, not starting with a dot"):
        check_session(session)
    layout = Layout("/r")
    for use in (layout.inbox, layout.task_dir, lambda s: layout.mailbox(KEY, s), lambda s: layout.outbox(KEY, s)):
        with pytest.raises(UsageError):
            use(session)


@pytest.mark.parametrize("key", ["", KEY[:-1], KEY + "A", KEY[:-1] + "/", KEY[:-1] + "=", "../" + KEY[3:]])
def test_an_identity_is_a_whole_public_key(key: str) -> None:
    with pytest.raises(UsageError, match="not a public key"):
        check_identity(key)
    for use in (Layout("/r").mailbox, Layout("/r").pairing, Layout("/r").failed, Layout("/r").outbox):
        with pytest.raises(UsageError):
            use(key, "s1")


@given(st.text(max_size=140))
def test_no_session_id_leaves_its_folder(session: str) -> None:
    try:
        found = Layout("/r").mailbox(KEY, session)
    except UsageError:
        return
    assert os.path.normpath(found) == found and os.path.dirname(found) == f"/r/mailbox/{KEY}"
