"""Servers that are emptied or about to stop."""


def test_after_a_reset_the_client_is_told_to_upload_again_and_then_it_works(start_server, make_golden):
    server = start_server()
    run = ("run", "mistakes.py", "main", "--n", "3", "--words", "[]")
    assert server.flyte(*run).code == 0
    server.wingbeat("stop")
    server.wingbeat("reset", "--yes")
    server.up()
    # The inputs come before the question whether the code is there.
    with server.unchanged("offloaded-inputs/"):
        refused = server.flyte(*run)
    make_golden(server)("bundle-gone", refused)
    assert server.flyte("delete", "local-cache").code == 0
    assert server.flyte(*run).code == 0


def test_a_server_that_drains_takes_no_new_runs(start_server, make_golden):
    server = start_server()
    assert server.flyte("run", "--name", "long", "mistakes.py", "slow").code == 0
    server.until_running("long")
    server.interrupt()
    server.until_draining()
    with server.unchanged():
        refused = server.flyte("run", "--name", "late", "mistakes.py", "slow")
    make_golden(server)("draining", refused)
    server.interrupt()
