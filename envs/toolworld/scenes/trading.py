"""The trading account: stocks, orders, a watch list; most of it needs a login."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from envs.task import JSON
from envs.toolworld.scene import Beat, Intent, SceneReading, SceneWithLogin, call, known, require
from envs.toolworld.words import Words


class Trading(SceneWithLogin):
    class_name = "TradingBot"
    makers = MappingProxyType({"buy": "order", "sell": "order"})
    family = "trading"
    login_tool = "trading_login"

    def __init__(self, words: Words, size: int, *, rich: bool = False) -> None:
        super().__init__(words, size, rich=rich)
        self._symbols = [words.draw("symbol") for _ in range((2 * size if rich else size) + 1)]
        self._prices = {symbol: self.rng.randrange(1000, 30000) / 100 for symbol in self._symbols}
        self._watched = self._symbols[: (2 * size if rich else self.rng.randint(1, 2))]
        self._logged_in = self.rng.random() < 0.5
        first = words.identifier(4)
        self._orders = {first + step: self.rng.choice(("Open", "Pending", "Completed")) for step in range(size)}
        self._next = first + size
        self._placed: int | None = None
        self._quoted: str | None = None
        self._watched_list: tuple[str, ...] | None = None
        self._last_listed: int | None = None
        """The watch list, and the last order of the list of orders, as they were shown last."""
        self._account = words.identifier(5)
        self._balance = float(words.identifier(5))

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
            "authenticated": self._logged_in,
            "market_status": "Open",
            "order_counter": self._next,
            "stocks": stocks,
            "watch_list": list(self._watched),
            "transaction_history": [],
        }

    @property
    def intents(self) -> tuple[Intent, ...]:
        return (
            *(self.quote, self.watch, self.unwatch, self.order, self.order, self.cancel, self.cancel_placed),
            *(self.details, self.details_placed, self.fund, self.withdraw, self.account, self.watchlist),
            *(self.history, self.between, self.login, self.logout),
        )

    @property
    def referring(self) -> tuple[Intent, ...]:
        return (
            *(self.quote, self.order, self.watchlist, self.history, self.buy_at_price, self.buy_and_show),
            *(self.last_order, self.first_watched, self.unwatch_first),
        )

    @property
    def recalling(self) -> tuple[Intent, ...]:
        return (
            *(self.cancel_placed, self.details_placed, self.buy_quoted, self.quote_listed, self.unwatch_listed),
            self.details_listed,
        )

    def quote(self) -> Beat:
        symbol = self.words.pick(self._symbols)
        calls = (call("get_stock_info", symbol=symbol),)
        return Beat("trading.quote", calls, {"symbol": symbol}, lambda: self._quote(symbol))

    def buy_quoted(self) -> Beat:
        """Shares of the stock that was looked up last."""
        symbol, shares = known(self._quoted), self.rng.randint(11, 30)
        price = self._prices[symbol]
        placed = call("place_order", order_type="Buy", symbol=symbol, price=price, amount=shares)
        return self.with_login("buy_quoted", (placed,), {"shares": str(shares)}, self._place, reads=(str(price),))

    def buy_at_price(self) -> Beat:
        read, shares = self.price(), self.rng.randint(11, 30)
        symbol = read.slots["symbol"]
        placed = call("place_order", order_type="Buy", symbol=symbol, price=read.value, amount=shares)

        def effect() -> None:
            read.effect()
            self._place()

        slots = {**read.slots, "shares": str(shares)}
        calls = (*read.calls, placed)
        return self.with_login("buy_at_price", calls, slots, effect, reads=(str(read.value),))

    def buy_and_show(self) -> Beat:
        """An order, and what became of it."""
        symbol, price, shares = self.words.pick(self._symbols), self.words.decimal(10, 100), self.rng.randint(11, 90)
        placed = call("place_order", order_type="Buy", symbol=symbol, price=price, amount=shares)
        slots = {"symbol": symbol, "price": str(price), "shares": str(shares)}
        calls = (placed, call("get_order_details", order_id=self._next))
        return self.with_login("buy_and_show", calls, slots, self._place, reads=(str(self._next),))

    def last_order(self) -> Beat:
        number = self._next - 1
        calls = (call("get_order_history"), call("get_order_details", order_id=number))
        return self.with_login("last_order", calls, {}, self._list_orders, bulk=True, reads=(str(number),))

    def first_watched(self) -> Beat:
        require(self._watched)
        symbol = self._watched[0]
        calls = (call("get_watchlist"), call("get_stock_info", symbol=symbol))
        return self.with_login("first_watched", calls, {}, lambda: self._quote(symbol), bulk=True, reads=(symbol,))

    def unwatch_first(self) -> Beat:
        require(self._watched)
        symbol = self._watched[0]
        calls = (call("get_watchlist"), call("remove_stock_from_watchlist", symbol=symbol))
        effect = partial(self._watched.remove, symbol)
        return self.with_login("unwatch_first", calls, {}, effect, bulk=True, reads=(symbol,))

    def quote_listed(self) -> Beat:
        """The first stock of the watch list that was shown."""
        symbol = self._first_listed()
        calls = (call("get_stock_info", symbol=symbol),)
        return Beat("trading.quote_listed", calls, {}, partial(self._quote, symbol), reads=(symbol,))

    def unwatch_listed(self) -> Beat:
        symbol = self._first_listed()
        calls = (call("remove_stock_from_watchlist", symbol=symbol),)
        effect = partial(self._watched.remove, symbol)
        return self.with_login("unwatch_listed", calls, {}, effect, reads=(symbol,))

    def details_listed(self) -> Beat:
        """The last order of the list that was shown."""
        number = known(self._last_listed)
        calls = (call("get_order_details", order_id=number),)
        return Beat("trading.details_listed", calls, {}, reads=(str(number),))

    def price(self) -> SceneReading:
        """The price of a stock, looked up."""
        symbol = self.words.pick(self._symbols)
        calls = (call("get_stock_info", symbol=symbol),)
        return SceneReading(calls, {"symbol": symbol}, self._prices[symbol], partial(self._quote, symbol))

    def two_prices(self) -> SceneReading:
        first, second = self.rng.sample(self._symbols, 2)
        calls = (call("get_stock_info", symbol=first), call("get_stock_info", symbol=second))
        prices: JSON = [self._prices[first], self._prices[second]]
        return SceneReading(calls, {"first": first, "second": second}, prices, partial(self._quote, second))

    def watch(self) -> Beat:
        symbol = self.words.pick(self._symbols)
        require(symbol not in self._watched)
        calls = (call("add_to_watchlist", stock=symbol),)
        return Beat("trading.watch", calls, {"symbol": symbol}, lambda: self._watched.append(symbol), bulk=True)

    def unwatch(self) -> Beat:
        require(self._watched)
        symbol = self.words.pick(self._watched)
        effect = partial(self._watched.remove, symbol)
        wanted = call("remove_stock_from_watchlist", symbol=symbol)
        return self.with_login("unwatch", (wanted,), {"symbol": symbol}, effect)

    def order(self) -> Beat:
        symbol, price, shares = self.words.pick(self._symbols), self.words.decimal(10, 100), self.rng.randint(11, 90)
        kind = self.words.pick(("Buy", "Sell"))
        slots = {"symbol": symbol, "price": str(price), "shares": str(shares)}
        placed = call("place_order", order_type=kind, symbol=symbol, price=price, amount=shares)
        return self.with_login(kind.lower(), (placed,), slots, self._place)

    def cancel(self) -> Beat:
        return self._cancel([number for number, status in self._orders.items() if status != "Completed"], "cancel")

    def cancel_placed(self) -> Beat:
        return self._cancel([known(self._placed)], "cancel_placed")

    def details(self) -> Beat:
        number = self.rng.choice(list(self._orders))
        return Beat("trading.details", (call("get_order_details", order_id=number),), {"order": str(number)})

    def details_placed(self) -> Beat:
        return Beat("trading.details_placed", (call("get_order_details", order_id=known(self._placed)),), {})

    def fund(self) -> Beat:
        amount = self.words.number(100, 2000)
        return self.with_login("fund", (call("fund_account", amount=amount),), {"amount": str(amount)})

    def withdraw(self) -> Beat:
        amount = self.words.number(100, 2000)
        return self.with_login("withdraw", (call("withdraw_funds", amount=amount),), {"amount": str(amount)})

    def account(self) -> Beat:
        return self.with_login("account", (call("get_account_info"),), {})

    def watchlist(self) -> Beat:
        return self.with_login("watchlist", (call("get_watchlist"),), {}, self._list_watched, bulk=True)

    def history(self) -> Beat:
        return self.with_login("history", (call("get_order_history"),), {}, self._list_orders, bulk=True)

    def between(self) -> Beat:
        low, high = self.words.number(20, 90), self.words.number(120, 280)
        stocks = self.rng.sample(self._symbols, 2)
        calls = (call("filter_stocks_by_price", stocks=stocks, min_price=low, max_price=high),)
        slots = {"first": stocks[0], "second": stocks[1], "low": str(low), "high": str(high)}
        return Beat("trading.between", calls, slots)

    def logout(self) -> Beat:
        require(self._logged_in)
        return Beat("trading.logout", (call("trading_logout"),), {}, self._log_out)

    def _cancel(self, numbers: list[int], intent: str) -> Beat:
        require(numbers)
        number = self.rng.choice(numbers)

        def effect() -> None:
            self._orders[number] = "Completed"
            self._placed = None

        slots = {"order": str(number)} if intent == "cancel" else {}
        return Beat(f"trading.{intent}", (call("cancel_order", order_id=number),), slots, effect)

    def _list_watched(self) -> None:
        self._watched_list = tuple(self._watched)

    def _list_orders(self) -> None:
        self._last_listed = self._next - 1

    def _first_listed(self) -> str:
        """The first stock of the watch list, where it was shown and is as it was."""
        require(self._watched and self._watched_list == tuple(self._watched))
        return self._watched[0]

    def _quote(self, symbol: str) -> None:
        self._quoted = symbol

    def _place(self) -> None:
        self._placed = self._next
        self._next += 1
        self._last_listed = None

    def credentials(self) -> Mapping[str, str]:
        # The benchmark accepts any name and password here, so the user's words are all there is.
        return {"username": self.words.draw("account"), "password": self.words.draw("password")}
