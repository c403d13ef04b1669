"""The trading account: stocks, orders, a watch list; most of it needs a login."""

from collections.abc import Mapping
from functools import partial
from typing import ClassVar

from envs.task import JSON
from envs.toolworld.scene import Ask, Scene, Values, require

_login = partial(Ask, login=True)
_ORDER = "any_stock price:decimal(10,100) shares:integer(11,90)"
_FEW = "shares:integer(11,30)"
_INFO = "get_stock_info(symbol=symbol)"
_BUY = "place_order(order_type='Buy', symbol=symbol, price=price, amount=shares)"
_WATCHED = "get_watchlist()"
_HISTORY = "get_order_history()"
_UNWATCH = "remove_stock_from_watchlist(symbol=symbol)"
_DETAILS = "get_order_details(order_id=order)"


class Trading(Scene):
    class_name = "TradingBot"
    makers: ClassVar[Mapping[str, str]] = {"buy": "order", "sell": "order"}
    rows: ClassVar[Mapping[str, Ask]] = {
        "login": Ask("is_logged_out credentials", "trading_login(username=username, password=password)", "log_in"),
        "logout": Ask("is_logged_in", "trading_logout()", "log_out"),
        "quote": Ask("any_stock", _INFO, "quoted=symbol"),
        "watch": Ask("unwatched_stock", "add_to_watchlist(stock=symbol)", "watch", bulk=True),
        "unwatch": _login("watched_stock", _UNWATCH, "unwatch"),
        "order": _login(
            f"{_ORDER} any_kind", "place_order(order_type=_kind, symbol=symbol, price=price, amount=shares)", "place"
        ),
        "cancel": Ask("open_order", "cancel_order(order_id=order)", "cancel"),
        "cancel_placed": Ask("order<placed one_order", "cancel_order(order_id=order)", "cancel", hides="order"),
        "details": Ask("any_order", _DETAILS),
        "details_placed": Ask("order<placed", _DETAILS, hides="order"),
        "fund": _login("amount:number(100,2000)", "fund_account(amount=amount)"),
        "withdraw": _login("amount:number(100,2000)", "withdraw_funds(amount=amount)"),
        "account": _login("", "get_account_info()"),
        "watchlist": _login("", _WATCHED, "note_watch_list", bulk=True),
        "history": _login("last_order", _HISTORY, "last_listed=order", hides="order", bulk=True),
        "between": Ask(
            "low:number(20,90) high:number(120,280) two_stocks",
            "filter_stocks_by_price(stocks=_both, min_price=low, max_price=high)",
        ),
        "price": Ask("any_stock its_price", _INFO, "quoted=symbol", reads="price"),
        "two_prices": Ask(
            "two_stocks",
            "get_stock_info(symbol=first); get_stock_info(symbol=second)",
            "quoted=second",
            reads="_prices",
        ),
        "buy_quoted": _login(f"symbol<quoted its_price {_FEW}", _BUY, "place", reads="price", hides="symbol"),
        "buy_at_price": _login(f"any_stock its_price {_FEW}", f"{_INFO}; {_BUY}", "quoted=symbol place", reads="price"),
        "buy_and_show": _login(f"{_ORDER} order@next", f"{_BUY}; {_DETAILS}", "place", reads="order"),
        "last_order": _login("last_order", f"{_HISTORY}; {_DETAILS}", "last_listed=order", reads="order", bulk=True),
        "first_watched": _login("first_watched", f"{_WATCHED}; {_INFO}", "quoted=symbol", reads="symbol", bulk=True),
        "unwatch_first": _login("first_watched", f"{_WATCHED}; {_UNWATCH}", "unwatch", reads="symbol", bulk=True),
        "quote_listed": Ask("first_listed", _INFO, "quoted=symbol", reads="symbol"),
        "unwatch_listed": _login("first_listed", _UNWATCH, "unwatch", reads="symbol"),
        "details_listed": Ask("order<last_listed", _DETAILS, reads="order"),
    }
    requests = (
        "quote watch unwatch order order cancel cancel_placed details details_placed fund withdraw account watchlist "
        "history between login logout"
    )
    referring_requests = (
        "quote order watchlist history buy_at_price buy_and_show last_order first_watched unwatch_first"
    )
    recalling_requests = "cancel_placed details_placed buy_quoted quote_listed unwatch_listed details_listed"

    def draw_start(self) -> None:
        self._symbols = [self.words.draw("symbol") for _ in range((2 * self.size if self.rich else self.size) + 1)]
        self._prices = {symbol: self.rng.randrange(1000, 30000) / 100 for symbol in self._symbols}
        self._watched = self._symbols[: (2 * self.size if self.rich else self.rng.randint(1, 2))]
        self.logged_in = self.rng.random() < 0.5
        first = self.words.identifier(4)
        self._orders = {first + step: self.rng.choice(("Open", "Pending", "Completed")) for step in range(self.size)}
        self._next = first + self.size
        self._watch_list: tuple[str, ...] | None = None
        """The watch list, as it was shown last."""
        self._account = self.words.identifier(5)
        self._balance = float(self.words.identifier(5))

    def start_config(self) -> Mapping[str, JSON]:
        orders = {
            str(number): {
                "id": number,
                "order_type": self.words.pick(("Buy", "Sell")),
                "symbol": symbol,
                "price": self._prices[symbol],
                "amount": self.rng.randint(5, 60),
                "status": status,
            }
            for (number, status), symbol in zip(self._orders.items(), self._symbols, strict=False)
        }
        stocks = {
            symbol: {"price": price, "percent_change": 0.2, "volume": 1.5, "MA(5)": price, "MA(20)": price}
            for symbol, price in self._prices.items()
        }
        return {
            "orders": orders,
            "account_info": {"account_id": self._account, "balance": self._balance, "binding_card": self._account + 7},
            "authenticated": self.logged_in,
            "market_status": "Open",
            "order_counter": self._next,
            "stocks": stocks,
            "watch_list": list(self._watched),
            "transaction_history": [],
        }

    def credentials(self, _: Values) -> Values:
        # The benchmark accepts any name and password here, so the user's words are all there is.
        return {"username": self.words.draw("account"), "password": self.words.draw("password")}

    # Draws.

    def any_stock(self, _: Values) -> Values:
        return {"symbol": self.words.pick(self._symbols)}

    def unwatched_stock(self, values: Values) -> Values:
        stock = self.any_stock(values)
        require(stock["symbol"] not in self._watched)
        return stock

    def watched_stock(self, _: Values) -> Values:
        return {"symbol": self.words.pick(require(self._watched))}

    def first_watched(self, _: Values) -> Values:
        return {"symbol": require(self._watched)[0]}

    def first_listed(self, values: Values) -> Values:
        """The first stock of the watch list, if the list was shown and has not changed."""
        require(self._watch_list == tuple(self._watched))
        return self.first_watched(values)

    def two_stocks(self, _: Values) -> Values:
        both = self.rng.sample(self._symbols, 2)
        return {"first": both[0], "second": both[1], "_both": both, "_prices": [self._prices[each] for each in both]}

    def its_price(self, values: Values) -> Values:
        return {"price": self._prices[values["symbol"]]}

    def any_kind(self, _: Values) -> Values:
        kind = self.words.pick(("Buy", "Sell"))
        return {"_kind": kind, "_intent": kind.lower()}

    def any_order(self, _: Values) -> Values:
        return {"order": self.rng.choice(list(self._orders))}

    def open_order(self, _: Values) -> Values:
        numbers = [number for number, status in self._orders.items() if status != "Completed"]
        return {"order": self.rng.choice(require(numbers))}

    def one_order(self, values: Values) -> None:
        self.rng.choice([values["order"]])  # keeps the sequence of random numbers

    def last_order(self, _: Values) -> Values:
        return {"order": self._next - 1}

    # Effects.

    def watch(self, values: Values) -> None:
        self._watched.append(values["symbol"])

    def unwatch(self, values: Values) -> None:
        self._watched.remove(values["symbol"])

    def place(self, _: Values) -> None:
        self.facts |= {"placed": self._next, "last_listed": None}
        self._next += 1

    def cancel(self, values: Values) -> None:
        self._orders[values["order"]] = "Completed"
        self.facts["placed"] = None

    def note_watch_list(self, _: Values) -> None:
        self._watch_list = tuple(self._watched)
