"""The provider's error texts, and the same in other words.

Clients must not live on wording; `Settings.reworded` swaps the whole table and keeps the statuses. Texts marked `?` in
the comments are not publicly known and were made up here in the provider's manner.
"""

TEXTS: dict[str, tuple[str, str]] = {
    # key: (as known, reworded)
    "bad_key": ("Invalid API token.", "Authentication failed."),
    "bad_address": ("Unauthorized IP address: {address}", "Requests from {address} are not permitted."),
    "forbidden": ("Forbidden", "No permission."),
    "rate_limit": ("Rate limit reached - please try your request again later.", "Too many requests."),
    "method": ("Method not allowed. Must be one of: {methods}", "Unsupported verb; use {methods}"),
    "route": ("Not found.", "There is nothing here."),
    "content_type": ("Invalid Content-Type.", "Send JSON with the right header."),  # ?
    "bad_json": ("Invalid JSON body.", "The request could not be parsed."),  # ?
    "missing_field": ("Missing required field: {name}", "Field {name} has to be present."),  # ?
    "bad_field": ("Invalid {name}", "The value of {name} makes no sense."),  # ?
    "internal": ("Internal error", "Something went wrong."),
    "bad_cursor": ("Invalid cursor.", "This page does not exist."),  # ?
    "bad_filter": ("Invalid filter.", "This query is not understood."),  # ?
    "instance": ("instance not found", "No such thing."),
    "bare_metal": ("Invalid server", "No such box."),
    "vpc": ("Invalid VPC ID.", "No such net."),
    "instance_vpcs": ("Invalid instance-id", "No such thing."),
    "ssh_key": ("Invalid ssh key", "Key unknown."),
    "startup_script": ("Invalid startup script ID", "Script unknown."),
    "firewall_group": ("Invalid firewall group ID", "Group unknown."),
    "firewall_rule": ("Firewall rule ID not found", "Rule unknown."),
    "reserved_ip": ("Invalid reserved-ip ID", "Address unknown."),
    "snapshot": ("Invalid snapshot ID", "Image unknown."),
    "job": ("Invalid job ID", "Task unknown."),  # ?
    "invoice": ("Invalid invoice ID", "Bill unknown."),  # ?
    "region": ("Invalid region.", "Unknown place."),
    "availability_type": ("Please provide a valid type: {types}", "Type must be among {types}"),
    "plan": ("Invalid plan chosen.", "Unknown product."),
    "no_capacity": (
        "Plan is not available in the selected datacenter.  This could mean you have chosen the wrong plan "
        "(for example, a storage plan in a location that does not offer them), or the location you have selected "
        "does not have any more capacity.",
        "This order cannot be fulfilled at the moment.",
    ),
    "instance_limit": (
        "Server add failed: You have reached the maximum number of active instances for this account.",
        "Order declined: your account may not run more machines.",
    ),
    "fee_limit": (
        "Server add failed: You have reached the maximum monthly fee limit for this account",
        "Order declined: spending ceiling.",
    ),
    "image": ("Invalid OS, snapshot, app or image chosen.", "Nothing bootable was selected."),  # ?
    "tags": ("Too many tags.", "Fewer labels, please."),  # ?
    "user_data": ("Invalid user_data: must be base64 encoded", "Startup data has the wrong encoding."),  # ?
    "hostname": ("Invalid hostname", "This machine name is not allowed."),  # ?
    "not_active": (
        "Unable to destroy server: This subscription is not currently active, you cannot destroy it.",
        "Removal rejected, the order is still being set up.",
    ),
    "destroy_locked": (
        "Unable to destroy server: Unable to remove VM: Server is currently locked",
        "Removal rejected, another task holds the machine.",
    ),
    "already_destroying": (
        "Unable to destroy server: Server is already pending destruction.",
        "Removal rejected, this was requested before.",
    ),
    "destroying": ("Server is pending destruction", "On its way out."),
    "action_locked": ("Unable to {action} server: Server is currently locked", "Cannot {action}: busy."),
    "action_inactive": (
        "Unable to {action} server: This subscription is not currently active",
        "Cannot {action}: still being set up.",
    ),
    "upgrade": ("Invalid plan chosen.", "Cannot change to this product."),
    "attach": ("Unable to attach VPC", "Joining the net did not work this time."),
    "attach_no_support": (
        "Unable to attach VPC: Failed to attach VPC network: Plan does not support VPC networking",
        "This product cannot join nets.",
    ),
    "attach_twice": ("VPC is already attached to this server", "Already a member of the net."),  # ?
    "attach_second": ("Unable to attach VPC: Server may only have one VPC", "One net per box."),  # ?
    "vpc_not_attached": ("VPC is not attached to this server", "Not a member of the net."),  # ?
    "vpc_in_use": (
        "The following servers are attached to this VPC network: {addresses}",
        "Net busy ({addresses}).",
    ),
    "vpc_limit": (
        "You have reached the maximum number of VPC networks for this location.",  # ?
        "No more nets here.",
    ),
    "script_base64": ("Script must be base64 encoded", "Script has the wrong encoding."),
    "rule_exists": ("This rule is already defined ", "Same rule again."),
    "ip_in_use": (
        "Floating IPv4 address is already attached to another server",
        "Address is taken by a different machine.",
    ),
    "ip_region": ("Reserved IP is not in the same region as the server", "Address lives elsewhere."),  # ?
    "block": ("Invalid block storage ID", "Disk unknown."),
    "block_snapshot": ("Invalid block storage snapshot ID", "Disk image unknown."),  # ?
    "block_type": ("Invalid block_type", "There is no such sort of disk."),  # ?
    "block_size": ("Invalid size_gb: must be between {low} and {high}", "A disk of this size is not sold."),  # ?
    "block_region": ("Block storage is not available in this location.", "No such disks here."),  # ?
    "block_sold_out": ("Block storage is currently not available in this location.", "Disks: try elsewhere."),  # ?
    "block_limit": ("You have reached the maximum number of block storage subscriptions.", "No more disks."),  # ?
    "block_pending": ("Block storage subscription is not currently active", "The disk is being made."),  # ?
    "block_locked": ("Server is currently locked", "Another task holds the machine."),
    "block_inactive": ("Server is not currently active", "The machine is not ready for disks."),  # ?
    "block_other_region": ("Block storage must be in the same location as the server", "Disk lives elsewhere."),  # ?
    "block_metal": ("Invalid instance ID: block storage requires a VPS", "This box takes no disks."),  # ?
    "block_elsewhere": (
        "Block storage is already attached to another server",
        "The disk is in use by a different machine.",
    ),
    "block_here": ("Block storage is already attached to this server", "The disk is there already."),  # ?
    "block_too_many": ("Server has the maximum number of block storage volumes", "No room for another disk."),  # ?
    "block_detached": ("Block storage volume is not currently attached to a server", "The disk is free."),
    "block_stuck": ("Unable to detach block storage", "The disk cannot be let go."),
    "block_in_use": ("Block storage is currently attached to a server", "The disk is in use."),  # ?
    "vfs": ("Subscription ID Not Found.", "File system unknown."),
    "vfs_closed": ("Subscription Already Closed", "This was removed before."),
    "vfs_in_use": (
        "Can not delete this subscription until it is detatched from all machines",
        "File system is mounted somewhere.",
    ),
    "vfs_attachment": ("Attachment Not Found", "Not mounted there."),
    "vfs_attached": ("Attachment Already Exists", "Mounted there already."),  # ?
    "vfs_size": ("Invalid storage size", "A file system of this size is not sold."),  # ?
    "vfs_region": ("Invalid region.", "No file systems here."),
    "vfs_target": ("Target is not supported", "This machine mounts no file systems."),  # ?
    "vfs_pending": ("Subscription is not active", "The file system is being made."),  # ?
    "nothing_to_change": ("Nothing to change", "No difference."),
    "snapshot_fetch": ("Unable to fetch snapshot", "Image could not be loaded."),  # ?
}


def text(key: str, reworded: bool, **values: str) -> str:
    """The text for `key`, filled in."""
    template = TEXTS[key][reworded]
    return template.format(**values) if values else template
