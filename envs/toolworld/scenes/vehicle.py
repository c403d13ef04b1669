"""The car: an engine that starts only with locked doors and a pressed brake, and settings to change and read."""

from collections.abc import Mapping
from typing import ClassVar

from envs.task import JSON, ToolCall
from envs.toolworld.scene import Ask, Scene, Values, known, require

_DOORS = ("driver", "passenger", "rear_left", "rear_right")
_LITER = 0.264172
"""Gallons in a liter, as the simulator converts."""
_STATUS = {"the fuel level": "fuel", "the battery": "battery", "the doors": "doors", "the climate control": "climate"}
_STATUS |= {"the headlights": "headlights", "the engine": "engine"}
_FILL = "fillFuelTank(fuelAmount=_gallons)"
_PRINTED = 8
"""Characters of a converted amount at most, so that it can be copied."""
_LOCK_ALL = ToolCall("lockDoors", {"unlock": False, "door": list(_DOORS)})


class Vehicle(Scene):
    class_name = "VehicleControlAPI"
    makers: ClassVar[Mapping[str, str]] = {"lock": "one_door", "unlock": "one_door", "climate_mode": "cooler"}
    rows: ClassVar[Mapping[str, Ask]] = {
        "start": Ask("is_stopped", "_start", "start"),
        "start_and_drive": Ask("is_stopped place:place", "_start; set_navigation(destination=place)", "start"),
        "navigate": Ask("place:place", "set_navigation(destination=place)"),
        "fill": Ask("any_gallons fits", _FILL, "fill"),
        "fill_liters": Ask("any_liters fits", f"liter_to_gallon(liter=liters); {_FILL}", "fill"),
        "lock_all": Ask("is_unlocked", "_lock", "lock_all"),
        "one_door": Ask("any_door", "lockDoors(unlock=_unlock, door=[_door])", "turn_lock"),
        "climate": Ask("degrees:decimal(16,29)", "adjustClimateControl(temperature=degrees)"),
        "cooler": Ask(
            "degrees:decimal(16,29) any_climate", "adjustClimateControl(temperature=degrees, fanSpeed=fan, mode=mode)"
        ),
        "lights": Ask("other_light", "setHeadlights(mode=mode)", "switch_lights"),
        "parking_brake": Ask("other_brake", "activateParkingBrake(mode=mode)", "switch_parking"),
        "cruise": Ask(
            "any_cruise", "_start; setCruiseControl(speed=speed, activate=True, distanceToNextVehicle=meters)", "start"
        ),
        "status": Ask("any_part", "displayCarStatus(option=_option)"),
        "tires": Ask("", "check_tire_pressure()"),
        "reach": Ask("miles:number(50,400)", "estimate_drive_feasibility_by_mileage(distance=miles)"),
        "liters": Ask("gallons:number(2,40)", "gallon_to_liter(gallon=gallons)"),
        "gallons": Ask("any_liters", "liter_to_gallon(liter=liters)", "converted=_gallons"),
        "fill_converted": Ask("_gallons<converted fits", _FILL, "fill", reads="_gallons"),
        "fuel_in_liters": Ask("fuel", "displayCarStatus(option='fuel'); gallon_to_liter(gallon=_fuel)", reads="_fuel"),
        "gauge": Ask("", "displayCarStatus(option='fuel')", "note_gauge"),
        "gauge_in_liters": Ask("gauge_is_right fuel", "gallon_to_liter(gallon=_fuel)", reads="_fuel"),
        "pressures": Ask("_pressures@pressures", "check_tire_pressure()", reads="_pressures"),
    }
    requests = (
        "start start start_and_drive start_and_drive navigate fill fill_liters lock_all one_door climate cooler lights "
        "parking_brake cruise cruise status tires reach liters"
    )
    referring_requests = "fill_liters gallons gauge fuel_in_liters"
    recalling_requests = "fill_converted gauge_in_liters"

    def draw_start(self) -> None:
        self._destination = self.words.draw("place")
        self._fuel = self.rng.randrange(20, 200) / 10
        self._running = self.rng.random() < 0.3
        self._unlocked = set() if self._running else set(_DOORS[: self.rng.choice((0, 0, 0, 1, 2, 4))])
        self._pressed = not self._running and self.rng.random() < 0.5
        self._lights = self.rng.random() < 0.4
        self._parked = self.rng.random() < 0.4
        self._gauge: float | None = None
        self._pressures = [self.rng.randrange(280, 360) / 10 for _ in range(4)]

    def start_config(self) -> Mapping[str, JSON]:
        front_left, front_right, rear_left, rear_right = self._pressures
        return {
            "fuelLevel": self._fuel,
            "batteryVoltage": 12.6,
            "engineState": "running" if self._running else "stopped",
            "doorStatus": {door: "unlocked" if door in self._unlocked else "locked" for door in _DOORS},
            "headLightStatus": "on" if self._lights else "off",
            "parkingBrakeStatus": "engaged" if self._parked else "released",
            "brakePedalStatus": "pressed" if self._pressed else "released",
            "brakePedalForce": 1000.0 if self._pressed else 0.0,
            "destination": self._destination,
            "frontLeftTirePressure": front_left,
            "frontRightTirePressure": front_right,
            "rearLeftTirePressure": rear_left,
            "rearRightTirePressure": rear_right,
        }

    # Draws.

    def is_stopped(self, _: Values) -> Values:
        require(not self._running)
        return {"_start": self._start_calls()}

    def is_unlocked(self, _: Values) -> Values:
        require(self._unlocked)
        return {"_lock": (_LOCK_ALL,)}

    def any_door(self, _: Values) -> Values:
        door = self.words.pick(_DOORS)
        unlock = door not in self._unlocked
        said, intent = door.replace("_", " "), "unlock" if unlock else "lock"
        return {"door": said, "_door": door, "_unlock": unlock, "_intent": intent}

    def any_gallons(self, _: Values) -> Values:
        gallons = self.words.decimal(1, 9)
        return {"gallons": gallons, "_gallons": gallons}

    def any_liters(self, _: Values) -> Values:
        """Liters that are short enough to copy once they are converted to gallons."""
        liters = self.words.number(5, 40)
        gallons = liters * _LITER
        require(len(str(gallons)) <= _PRINTED)
        return {"liters": liters, "_gallons": gallons}

    def fits(self, values: Values) -> None:
        """The tank has room for the gallons."""
        require(self._fuel + values["_gallons"] <= 49)

    def fuel(self, _: Values) -> Values:
        require(len(str(self._fuel)) <= _PRINTED)
        return {"_fuel": self._fuel}

    def gauge_is_right(self, _: Values) -> None:
        """The gauge was read, and nothing was filled in since."""
        require(known(self._gauge) == self._fuel)

    def any_climate(self, _: Values) -> Values:
        fan = self.rng.randrange(10, 100)
        return {"fan": fan, "mode": self.words.pick(("cool", "heat", "defrost")), "_intent": "climate_mode"}

    def other_light(self, _: Values) -> Values:
        return {"mode": "off" if self._lights else "on"}

    def other_brake(self, _: Values) -> Values:
        return {"mode": "release" if self._parked else "engage"}

    def any_cruise(self, _: Values) -> Values:
        speed, meters = self.rng.randrange(30, 120, 5), self.words.number(20, 150)
        return {"speed": speed, "meters": meters, "_start": () if self._running else self._start_calls()}

    def any_part(self, _: Values) -> Values:
        part = self.words.pick(tuple(_STATUS))
        return {"part": part, "_option": _STATUS[part]}

    def _start_calls(self) -> tuple[ToolCall, ...]:
        calls = [_LOCK_ALL] if self._unlocked else []
        if not self._pressed:
            calls.append(ToolCall("pressBrakePedal", {"pedalPosition": 1.0}))
        return (*calls, ToolCall("startEngine", {"ignitionMode": "START"}))

    # Effects.

    def start(self, _: Values) -> None:
        if not self._running:
            self._unlocked.clear()
            self._running = self._pressed = True

    def fill(self, values: Values) -> None:
        self._fuel += values["_gallons"]
        self.facts["converted"] = None

    def lock_all(self, _: Values) -> None:
        self._unlocked.clear()

    def turn_lock(self, values: Values) -> None:
        (self._unlocked.add if values["_unlock"] else self._unlocked.discard)(values["_door"])

    def switch_lights(self, _: Values) -> None:
        self._lights = not self._lights

    def switch_parking(self, _: Values) -> None:
        self._parked = not self._parked

    def note_gauge(self, _: Values) -> None:
        self._gauge = self._fuel
