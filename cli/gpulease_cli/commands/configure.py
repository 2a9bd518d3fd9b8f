"""`gpulease configure`: remember a deployed stack."""

import click

from gpulease_cli import profiles
from gpulease_cli.app import App
from gpulease_cli.aws import Aws
from gpulease_cli.endpoint import home
from gpulease_cli.errors import CliError
from gpulease_cli.exit_codes import ExitCode


@click.command("configure")
@click.option("--stack", required=True, metavar="NAME", help="Name of the CloudFormation stack.")
@click.option("--profile", "aws_profile", metavar="NAME", help="Profile of your AWS credentials [AWS_PROFILE].")
@click.option("--region", metavar="NAME", help="AWS region of the stack [AWS_REGION, or the profile's].")
@click.option("--name", default=profiles.DEFAULT, show_default=True, metavar="NAME", help="What to call it here.")
@click.pass_obj
def command(app: App, stack: str, aws_profile: str | None, region: str | None, name: str) -> None:
    """Use a deployed stack from now on.

    \b
    gpulease configure --stack gpulease
    gpulease configure --stack gpulease --profile research --region eu-central-1
    gpulease configure --stack gpulease-test --name test    # then: GPULEASE_PROFILE=test gpulease ls
    """
    profiles.check_name(name, "--name")
    aws = Aws(region or app.env.get("AWS_REGION"), aws_profile)
    outputs = aws.stack(stack)
    missing = [key for key in ("ApiUrl", "ApiAuthorization", "SecretPrefix") if key not in outputs]
    if missing:
        raise CliError(
            f"{stack!r} has no output {missing[0]}; is it gpulease's, and has its deployment ended well?",
            field="--stack",
            code=ExitCode.NOT_FOUND,
        )
    profile = profiles.Profile(
        url=outputs["ApiUrl"],
        authorization=outputs["ApiAuthorization"],
        stack=stack,
        region=aws.region(),
        secret_prefix=outputs["SecretPrefix"],
        aws_profile=aws_profile or "",
    )
    file = profiles.write(home(app.env), name, profile)
    app.say(f"{profile.url} ({stack} in {profile.region}) is {name!r} in {file}")
    if profile.authorization == "JWT":
        app.note("this API wants a token of its issuer: set GPULEASE_TOKEN")
