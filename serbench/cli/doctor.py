"""`serbench doctor`: will it work here, and well? It does not know how that is found out (serbench.doctor)."""

import click


@click.command("doctor", short_help="Look at the machine.")
@click.pass_context
def command(ctx: click.Context) -> None:
    """Look at cores, threads, memory, versions and caches: what would go wrong here, and what to do about it.

    Exits with 1 if something that serbench needs isn't there.
    """
    from serbench.doctor import examine
    from serbench.report.console import output_console
    from serbench.report.lists import findings_table

    findings = examine()
    output_console().print(findings_table(findings))
    if any(finding.state == "wrong" for finding in findings):
        ctx.exit(1)
