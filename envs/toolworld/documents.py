"""Compact documents of the tools: the public names and parameters, with a few words instead of paragraphs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from envs.bfcl.tools import all_tools
from envs.task import JSON, Parameter, ToolDoc

DESCRIPTIONS: Mapping[str, str] = MappingProxyType(
    {
        # GorillaFileSystem
        "cat": "Show the text of a file.",
        "cd": "Go into a folder, or .. for up.",
        "cp": "Copy a file.",
        "diff": "Compare two files.",
        "du": "Show the size of this folder.",
        "echo": "Write text into a file.",
        "find": "Find files by name in all folders.",
        "grep": "Show lines of a file with a pattern.",
        "ls": "List files and folders here.",
        "mkdir": "Make a new folder.",
        "mv": "Move or rename a file.",
        "pwd": "Show the current folder.",
        "rm": "Delete a file.",
        "rmdir": "Delete an empty folder.",
        "sort": "Show the lines of a file sorted.",
        "tail": "Show the last lines of a file.",
        "touch": "Make a new empty file.",
        "wc": "Count lines l, words w, characters c.",
        # TradingBot
        "add_to_watchlist": "Watch a stock.",
        "cancel_order": "Cancel an order.",
        "filter_stocks_by_price": "Keep the stocks in a price range.",
        "fund_account": "Put money into the account.",
        "get_account_info": "Show the account and its balance.",
        "get_available_stocks": "List stocks of a sector.",
        "get_current_time": "Tell the time.",
        "get_order_details": "Show an order.",
        "get_order_history": "List all order ids.",
        "get_stock_info": "Show the price of a stock.",
        "get_symbol_by_name": "Find the symbol of a company.",
        "get_transaction_history": "List past payments.",
        "get_watchlist": "List watched stocks.",
        "notify_price_change": "Tell which stocks changed much.",
        "place_order": "Buy or Sell shares of a stock.",
        "remove_stock_from_watchlist": "Stop watching a stock.",
        "trading_get_login_status": "Tell whether trading is logged in.",
        "trading_login": "Log in to trading.",
        "trading_logout": "Log out of trading.",
        "withdraw_funds": "Take money out of the account.",
        # MessageAPI
        "add_contact": "Add a contact.",
        "delete_message": "Delete the latest message to a user.",
        "get_message_stats": "Count messages and contacts.",
        "get_user_id": "Find the id of a user.",
        "list_users": "List all users.",
        "message_get_login_status": "Tell whether messages are logged in.",
        "message_login": "Log in to messages by id.",
        "search_messages": "Find messages with a word.",
        "send_message": "Send a message to a user id.",
        "view_messages_sent": "Show all messages sent.",
        # TwitterAPI
        "authenticate_twitter": "Log in to Twitter.",
        "comment": "Comment on a tweet.",
        "follow_user": "Follow a user.",
        "get_tweet": "Show a tweet.",
        "get_tweet_comments": "Show the comments on a tweet.",
        "get_user_stats": "Count the tweets of a user.",
        "get_user_tweets": "Show the tweets of a user.",
        "list_all_following": "List the users you follow.",
        "mention": "Mention users in a tweet.",
        "post_tweet": "Post a tweet.",
        "posting_get_login_status": "Tell whether Twitter is logged in.",
        "retweet": "Retweet a tweet.",
        "search_tweets": "Find tweets with a word.",
        "unfollow_user": "Stop following a user.",
        # VehicleControlAPI
        "activateParkingBrake": "Set the parking brake: engage or release.",
        "adjustClimateControl": "Set temperature, fan and mode.",
        "check_tire_pressure": "Check the tires.",
        "displayCarStatus": "Show the state of one part.",
        "display_log": "Show log messages.",
        "estimate_distance": "Distance between two zip codes.",
        "estimate_drive_feasibility_by_mileage": "Can the fuel last so many miles?",
        "fillFuelTank": "Add gallons of fuel.",
        "find_nearest_tire_shop": "Find a tire shop.",
        "gallon_to_liter": "Turn gallons into liters.",
        "get_current_speed": "Tell the speed.",
        "get_outside_temperature_from_google": "Outside temperature from Google.",
        "get_outside_temperature_from_weather_com": "Outside temperature from weather.com.",
        "get_zipcode_based_on_city": "Find the zip code of a city.",
        "liter_to_gallon": "Turn liters into gallons.",
        "lockDoors": "Lock doors, or unlock them.",
        "pressBrakePedal": "Press the brake, 1.0 is full.",
        "releaseBrakePedal": "Release the brake pedal.",
        "setCruiseControl": "Set the cruise control.",
        "setHeadlights": "Turn the headlights on or off.",
        "set_navigation": "Set where to drive.",
        "startEngine": "Start the engine: START.",
        # TicketAPI
        "close_ticket": "Close a ticket.",
        "create_ticket": "Open a new ticket.",
        "edit_ticket": "Change title or priority of a ticket.",
        "get_ticket": "Show a ticket.",
        "get_user_tickets": "Show all your tickets.",
        "logout": "Log out of tickets.",
        "resolve_ticket": "Resolve a ticket with a text.",
        "ticket_get_login_status": "Tell whether tickets are logged in.",
        "ticket_login": "Log in to tickets.",
        # MathAPI
        "absolute_value": "Drop the sign.",
        "add": "a plus b.",
        "divide": "a divided by b.",
        "imperial_si_conversion": "Turn miles, pounds and such into metric.",
        "logarithm": "Logarithm of a value.",
        "max_value": "The largest number.",
        "mean": "The average of numbers.",
        "min_value": "The smallest number.",
        "multiply": "a times b.",
        "percentage": "Part of a whole in percent.",
        "power": "Raise base to exponent.",
        "round_number": "Round a number.",
        "si_unit_conversion": "Convert metric units.",
        "square_root": "The square root.",
        "standard_deviation": "The spread of numbers.",
        "subtract": "a minus b.",
        "sum_values": "The sum of numbers.",
    }
)
"""Tool → what it does, in eight words at most."""

SUBSTITUTES: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        tool: frozenset(others.split())
        for tool, others in {
            "cat": "tail sort grep diff",
            "cp": "touch echo cat mv",
            "echo": "cp",
            "find": "ls cd",
            "grep": "cat tail sort",
            "ls": "find",
            "mv": "cp rm touch",
            "sort": "cat tail",
            "tail": "cat sort grep",
            "touch": "cp",
            "wc": "cat tail sort",
            "filter_stocks_by_price": "get_stock_info notify_price_change",
            "get_stock_info": "filter_stocks_by_price notify_price_change",
            "get_message_stats": "view_messages_sent search_messages list_users",
            "search_messages": "view_messages_sent",
            "view_messages_sent": "search_messages",
            "get_tweet": "get_user_tweets search_tweets",
            "get_user_stats": "get_user_tweets",
            "get_user_tweets": "search_tweets get_tweet",
            "search_tweets": "get_user_tweets get_tweet",
            "close_ticket": "edit_ticket resolve_ticket",
            "get_ticket": "get_user_tickets",
            "get_user_tickets": "get_ticket",
            "resolve_ticket": "edit_ticket close_ticket",
            "gallon_to_liter": "multiply divide imperial_si_conversion si_unit_conversion",
            "liter_to_gallon": "multiply divide imperial_si_conversion si_unit_conversion",
            "pressBrakePedal": "activateParkingBrake",
            "add": "sum_values subtract",
            "max_value": "min_value",
            "mean": "sum_values add divide",
            "min_value": "max_value",
            "multiply": "divide",
            "subtract": "add sum_values",
            "sum_values": "add mean",
        }.items()
    }
)
"""Tool → tools that could do its work in part. Where it is held out, these are not shown, so that it is missed."""


@cache
def compact_tool(name: str) -> ToolDoc:
    """The tool with its compact document; parameters are checked as the public ones are."""
    public = all_tools()[name]
    document = {
        "name": name,
        "description": DESCRIPTIONS[name],
        "parameters": {
            "type": "dict",
            "properties": {parameter.name: _schema(parameter) for parameter in public.parameters},
            "required": list(public.required),
        },
    }
    return ToolDoc(name, public.class_name, document, public.parameters)


def _schema(parameter: Parameter) -> dict[str, JSON]:
    schema: dict[str, JSON] = {"type": str(parameter.type)}
    if parameter.items is not None:
        schema["items"] = _schema(parameter.items)
    if parameter.properties:
        schema["properties"] = {inner.name: _schema(inner) for inner in parameter.properties}
    return schema


def compact_signature(tool: ToolDoc) -> str:
    """One line that shows the tool: `mv(source, destination) Move or rename a file.`

    Optional arguments carry a question mark. It is read from `tool.document`, so that what an interface writes there is
    seen; the description of an argument stands behind its name: `setHeadlights(mode: Type: string.) …`.
    """
    schema = tool.document["parameters"]
    required = set(schema["required"])
    arguments = []
    for name, value in schema["properties"].items():
        text = name if name in required else f"{name}?"
        description = value.get("description", "")
        arguments.append(f"{text}: {description}" if description else text)
    return f"{tool.document['name']}({', '.join(arguments)}) {tool.document['description']}"
