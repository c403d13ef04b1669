"""The car: an engine that starts only with locked doors and a pressed brake, and what can be set and asked."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from envs.task import JSON, ToolCall
from envs.toolworld.scene import Beat, Intent, Scene, SceneReading, call, known, require
from envs.toolworld.words import Words

_DOORS = ("driver", "passenger", "rear_left", "rear_right")
_LITER = 0.264172
"""Gallons in a liter, as the simulator converts."""
_STATUS = {
    "the fuel level": "fuel",
    "the battery": "battery",
    "the doors": "doors",
    "the climate control": "climate",
    "the headlights": "headlights",
    "the engine": "engine",
}
_PRINTED = 8
"""Characters of a converted amount at most, so that it can be copied."""


class Vehicle(Scene):
    class_name = "VehicleControlAPI"
    makers = MappingProxyType({"lock": "one_door", "unlock": "one_door", "climate_mode": "cooler"})

    def __init__(self, words: Words, size: int, *, rich: bool = False) -> None:
        super().__init__(words, size, rich=rich)
        self._destination = words.draw("place")
        self._fuel = self.rng.randrange(20, 200) / 10
        self._running = self.rng.random() < 0.3
        self._unlocked = set() if self._running else set(_DOORS[: self.rng.choice((0, 0, 0, 1, 2, 4))])
        self._pressed = not self._running and self.rng.random() < 0.5
        self._lights = self.rng.random() < 0.4
        self._parked = self.rng.random() < 0.4
        self._converted: float | None = None
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

    @property
    def intents(self) -> tuple[Intent, ...]:
        return (
            *(self.start, self.start, self.start_and_drive, self.start_and_drive, self.navigate, self.fill),
            *(self.fill_liters, self.lock_all, self.one_door, self.climate, self.cooler, self.lights),
            *(self.parking_brake, self.cruise, self.cruise, self.status, self.tires, self.reach, self.liters),
        )

    @property
    def referring(self) -> tuple[Intent, ...]:
        return (self.fill_liters, self.gallons, self.gauge, self.fuel_in_liters)

    @property
    def recalling(self) -> tuple[Intent, ...]:
        return (self.fill_converted, self.gauge_in_liters)

    def start(self) -> Beat:
        require(not self._running)
        return Beat("vehicle.start", self._start_calls(), {}, self._start)

    def start_and_drive(self) -> Beat:
        require(not self._running)
        place = self.words.draw("place")
        calls = (*self._start_calls(), call("set_navigation", destination=place))
        return Beat("vehicle.start_and_drive", calls, {"place": place}, self._start)

    def navigate(self) -> Beat:
        place = self.words.draw("place")
        return Beat("vehicle.navigate", (call("set_navigation", destination=place),), {"place": place})

    def fill(self) -> Beat:
        gallons = self.words.decimal(1, 9)
        return self._fill("fill", (call("fillFuelTank", fuelAmount=gallons),), {"gallons": str(gallons)}, gallons)

    def fill_liters(self) -> Beat:
        liters = self.words.number(5, 40)
        gallons = liters * _LITER
        require(len(str(gallons)) <= _PRINTED)
        calls = (call("liter_to_gallon", liter=liters), call("fillFuelTank", fuelAmount=gallons))
        return self._fill("fill_liters", calls, {"liters": str(liters)}, gallons)

    def lock_all(self) -> Beat:
        require(self._unlocked)
        return Beat("vehicle.lock_all", (_lock(*_DOORS),), {}, self._unlocked.clear)

    def one_door(self) -> Beat:
        door = self.words.pick(_DOORS)
        slots = {"door": door.replace("_", " ")}
        if door in self._unlocked:
            return Beat("vehicle.lock", (_lock(door),), slots, lambda: self._unlocked.discard(door))
        calls = (call("lockDoors", unlock=True, door=[door]),)
        return Beat("vehicle.unlock", calls, slots, lambda: self._unlocked.add(door))

    def climate(self) -> Beat:
        degrees = self.words.decimal(16, 29)
        calls = (call("adjustClimateControl", temperature=degrees),)
        return Beat("vehicle.climate", calls, {"degrees": str(degrees)})

    def cooler(self) -> Beat:
        degrees, fan = self.words.decimal(16, 29), self.rng.randrange(10, 100)
        mode = self.words.pick(("cool", "heat", "defrost"))
        calls = (call("adjustClimateControl", temperature=degrees, fanSpeed=fan, mode=mode),)
        return Beat("vehicle.climate_mode", calls, {"degrees": str(degrees), "fan": str(fan), "mode": mode})

    def lights(self) -> Beat:
        mode = "off" if self._lights else "on"
        effect = self._switch_lights
        return Beat("vehicle.lights", (call("setHeadlights", mode=mode),), {"mode": mode}, effect)

    def parking_brake(self) -> Beat:
        mode = "release" if self._parked else "engage"
        effect = self._switch_parking
        return Beat("vehicle.parking_brake", (call("activateParkingBrake", mode=mode),), {"mode": mode}, effect)

    def cruise(self) -> Beat:
        speed, meters = self.rng.randrange(30, 120, 5), self.words.number(20, 150)
        cruise = call("setCruiseControl", speed=speed, activate=True, distanceToNextVehicle=meters)
        calls = (cruise,) if self._running else (*self._start_calls(), cruise)
        return Beat("vehicle.cruise", calls, {"speed": str(speed), "meters": str(meters)}, self._start)

    def status(self) -> Beat:
        part = self.words.pick(tuple(_STATUS))
        return Beat("vehicle.status", (call("displayCarStatus", option=_STATUS[part]),), {"part": part})

    def tires(self) -> Beat:
        return Beat("vehicle.tires", (call("check_tire_pressure"),), {})

    def reach(self) -> Beat:
        miles = self.words.number(50, 400)
        calls = (call("estimate_drive_feasibility_by_mileage", distance=miles),)
        return Beat("vehicle.reach", calls, {"miles": str(miles)})

    def liters(self) -> Beat:
        gallons = self.words.number(2, 40)
        return Beat("vehicle.liters", (call("gallon_to_liter", gallon=gallons),), {"gallons": str(gallons)})

    def gallons(self) -> Beat:
        liters = self.words.number(5, 40)
        gallons = liters * _LITER
        require(len(str(gallons)) <= _PRINTED)

        def effect() -> None:
            self._converted = gallons

        calls = (call("liter_to_gallon", liter=liters),)
        return Beat("vehicle.gallons", calls, {"liters": str(liters)}, effect)

    def fill_converted(self) -> Beat:
        """The amount that was converted before."""
        gallons = known(self._converted)
        calls = (call("fillFuelTank", fuelAmount=gallons),)
        return self._fill("fill_converted", calls, {}, gallons, reads=(str(gallons),))

    def fuel_in_liters(self) -> Beat:
        """What is in the tank, converted."""
        require(len(str(self._fuel)) <= _PRINTED)
        calls = (call("displayCarStatus", option="fuel"), call("gallon_to_liter", gallon=self._fuel))
        return Beat("vehicle.fuel_in_liters", calls, {}, reads=(str(self._fuel),))

    def gauge(self) -> Beat:
        """The fuel level alone."""
        calls = (call("displayCarStatus", option="fuel"),)
        return Beat("vehicle.gauge", calls, {}, self._read_gauge)

    def gauge_in_liters(self) -> Beat:
        """What the gauge showed last, converted."""
        fuel = known(self._gauge)
        require(fuel == self._fuel and len(str(fuel)) <= _PRINTED)
        calls = (call("gallon_to_liter", gallon=fuel),)
        return Beat("vehicle.gauge_in_liters", calls, {}, reads=(str(fuel),))

    def pressures(self) -> SceneReading:
        """The pressure of the four tires, shown."""
        return SceneReading((call("check_tire_pressure"),), {}, list(self._pressures))

    def _start_calls(self) -> tuple[ToolCall, ...]:
        calls = [_lock(*_DOORS)] if self._unlocked else []
        if not self._pressed:
            calls.append(call("pressBrakePedal", pedalPosition=1.0))
        return (*calls, call("startEngine", ignitionMode="START"))

    def _fill(
        self,
        intent: str,
        calls: tuple[ToolCall, ...],
        slots: Mapping[str, str],
        gallons: float,
        reads: tuple[str, ...] = (),
    ) -> Beat:
        require(self._fuel + gallons <= 49)

        def effect() -> None:
            self._fuel += gallons
            self._converted = None

        return Beat(f"vehicle.{intent}", calls, slots, effect, reads=reads)

    def _read_gauge(self) -> None:
        self._gauge = self._fuel

    def _start(self) -> None:
        if not self._running:
            self._unlocked.clear()
            self._running = self._pressed = True

    def _switch_lights(self) -> None:
        self._lights = not self._lights

    def _switch_parking(self) -> None:
        self._parked = not self._parked


def _lock(*doors: str) -> ToolCall:
    return call("lockDoors", unlock=False, door=list(doors))
