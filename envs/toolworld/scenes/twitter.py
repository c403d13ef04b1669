"""The social network: posts, comments, people to follow; writing needs a login."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import ClassVar

from envs.task import JSON
from envs.toolworld.scene import Ask, Scene, Values, require

_login = partial(Ask, login=True)
_POST = "post_tweet(content=text)"
_COMMENT = "comment(tweet_id=_id, comment_content=text)"
_REPLY = "comment(tweet_id=_id, comment_content=reply)"
_MENTION = "mention(tweet_id=_id, mentioned_usernames=[name])"
_RETWEET = "retweet(tweet_id=_id)"
_TWEET = "get_tweet(tweet_id=_id)"
_POSTS = "get_user_tweets(username=author)"
_FOLLOWING = "list_all_following()"
_STATS = "get_user_stats(username=author)"
_FOLLOW = "follow_user(username_to_follow=author)"
_UNFOLLOW = "unfollow_user(username_to_unfollow=author)"


class Twitter(Scene):
    class_name = "TwitterAPI"
    rows: ClassVar[Mapping[str, Ask]] = {
        "login": Ask(
            "is_logged_out credentials", "authenticate_twitter(username=username, password=password)", "log_in"
        ),
        "post": _login("text:sentence", _POST, "post"),
        "post_tagged": _login("text:sentence any_tag", "post_tweet(content=text, tags=[tag])", "post"),
        "post_to": _login("text:sentence any_name", "post_tweet(content=text, mentions=[name])", "post"),
        "comment": _login("any_tweet text:sentence", _COMMENT),
        "comment_posted": _login("_id<posted text:sentence", _COMMENT),
        "retweet": _login("new_tweet", _RETWEET, "retweet"),
        "retweet_author": _login("new_lone_tweet", f"{_POSTS}; {_RETWEET}", "retweet shown="),
        "mention": Ask("any_tweet any_name", _MENTION),
        "follow": _login("author:account", _FOLLOW, "follow"),
        "unfollow": _login("followed", _UNFOLLOW, "unfollow"),
        "following": _login("", _FOLLOWING, "note_listed", bulk=True),
        "read": Ask("any_tweet", _TWEET, "shown=_author"),
        "posts_of": Ask("any_author", _POSTS, "shown=", bulk=True),
        "search": Ask("any_word", "search_tweets(keyword=word)", "shown="),
        "stats": Ask("any_author", _STATS),
        "mention_posted": Ask("_id<posted any_name", _MENTION, reads="_id"),
        "post_and_comment": _login("text:sentence reply:sentence _id@next", f"{_POST}; {_REPLY}", "post", reads="_id"),
        "post_and_mention": _login("text:sentence any_name _id@next", f"{_POST}; {_MENTION}", "post", reads="_id"),
        "comment_author": _login("lone_tweet text:sentence", f"{_POSTS}; {_COMMENT}", "shown=", reads="_id", bulk=True),
        "follow_author": _login("tweet_of_stranger", f"{_TWEET}; {_FOLLOW}", "shown=_author follow", reads="author"),
        "stats_author": Ask("authored_tweet", f"{_TWEET}; {_STATS}", "shown=_author", reads="author"),
        "unfollow_first": _login("first_followed", f"{_FOLLOWING}; {_UNFOLLOW}", "unfollow", reads="author", bulk=True),
        "unfollow_listed": _login("first_listed", _UNFOLLOW, "unfollow", reads="author"),
        "follow_shown": _login("author<shown is_stranger", _FOLLOW, "follow", reads="author"),
        "posts_shown": Ask("author<shown", _POSTS, reads="author", bulk=True),
        "retweet_posted": _login("_id<posted is_new", _RETWEET, "retweet", reads="_id"),
        "post_file": _login("", "_read; post_tweet(content=_value)", "post", reads="_value"),
    }
    requests = (
        "post post_tagged post_to comment comment_posted retweet retweet_author mention follow unfollow following read "
        "posts_of search stats login"
    )
    referring_requests = (
        "post post_tagged following read retweet_author comment_author post_and_comment post_and_mention follow_author "
        "stats_author unfollow_first"
    )
    recalling_requests = "comment_posted mention_posted unfollow_listed follow_shown posts_shown retweet_posted"

    def draw_start(self) -> None:
        self._who = {"username": self.words.draw("account"), "password": self.words.draw("password")}
        self.logged_in = self.rng.random() < 0.6
        authors = [self.words.draw("account") for _ in range(max(2, self.size // 4))]
        start = self.words.identifier(3)
        written = (authors[place % len(authors)] for place in range(self.size))
        self._tweets = {start + place: (author, self.words.draw("sentence")) for place, author in enumerate(written)}
        self._next = start + self.size
        self._following = [self.words.draw("account") for _ in range(self.size)]
        self._retweeted: set[int] = set()
        self._listed: tuple[str, ...] | None = None
        """Whom the user follows, as it was shown last."""

    def start_config(self) -> Mapping[str, JSON]:
        tweets = {
            str(number): {"id": number, "username": author, "content": text, "tags": [], "mentions": []}
            for number, (author, text) in self._tweets.items()
        }
        return {
            **self._who,
            "authenticated": self.logged_in,
            "tweets": tweets,
            "comments": {},
            "retweets": {},
            "following_list": list(self._following),
            "tweet_counter": self._next,
        }

    def credentials(self, _: Values) -> Values:
        return dict(self._who)

    # Draws.

    def any_tweet(self, _: Values) -> Values:
        return self._tweet(self.rng.choice(list(self._tweets)))

    def authored_tweet(self, _: Values) -> Values:
        number, (author, _text) = self.rng.choice(list(self._tweets.items()))
        return {**self._tweet(number), "author": author}

    def tweet_of_stranger(self, values: Values) -> Values:
        tweet = self.authored_tweet(values)
        self.is_stranger(tweet)
        return tweet

    def new_tweet(self, _: Values) -> Values:
        return self._tweet(self.rng.choice(require(self._new_tweets())))

    def lone_tweet(self, _: Values) -> Values:
        """A tweet of an author who wrote no other."""
        return self._choose_single(self._tweets)

    def new_lone_tweet(self, _: Values) -> Values:
        return self._choose_single(self._new_tweets())

    def is_new(self, values: Values) -> None:
        require(values["_id"] not in self._retweeted)

    def any_author(self, _: Values) -> Values:
        return {"author": self.rng.choice(list(self._tweets.values()))[0]}

    def any_word(self, _: Values) -> Values:
        _author, text = self.rng.choice(list(self._tweets.values()))
        return {"word": self.rng.choice(text.split()[1:])}

    def any_tag(self, _: Values) -> Values:
        return {"tag": f"#{self.words.draw('topic')}"}

    def any_name(self, _: Values) -> Values:
        return {"name": f"@{self.words.draw('account')}"}

    def is_stranger(self, values: Values) -> None:
        require(values["author"] not in self._following)

    def followed(self, _: Values) -> Values:
        return {"author": self.words.pick(require(self._following))}

    def first_followed(self, _: Values) -> Values:
        return {"author": require(self._following)[0]}

    def first_listed(self, values: Values) -> Values:
        """The first user of the list that was shown, if the list has not changed."""
        require(self._listed == tuple(self._following))
        return self.first_followed(values)

    def _new_tweets(self) -> list[int]:
        return [number for number in self._tweets if number not in self._retweeted]

    def _tweet(self, number: int) -> Values:
        return {"tweet": number, "_id": number, "_author": self._tweets[number][0]}

    def _choose_single(self, numbers: Iterable[int]) -> Values:
        authors = [author for author, _ in self._tweets.values()]
        single = [number for number in numbers if authors.count(self._tweets[number][0]) == 1]
        number = self.rng.choice(require(single))
        return {"_id": number, "author": self._tweets[number][0]}

    # Effects.

    def post(self, _: Values) -> None:
        self.facts |= {"posted": self._next, "shown": None}
        self._next += 1

    def retweet(self, values: Values) -> None:
        self._retweeted.add(values["_id"])

    def follow(self, values: Values) -> None:
        self._following.append(values["author"])

    def unfollow(self, values: Values) -> None:
        self._following.remove(values["author"])

    def note_listed(self, _: Values) -> None:
        self._listed = tuple(self._following)
