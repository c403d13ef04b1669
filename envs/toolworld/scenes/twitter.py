"""The social network: posts, comments, people to follow; writing needs a login."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from envs.task import JSON
from envs.toolworld.scene import Beat, Intent, SceneReading, SceneWithLogin, call, known, require
from envs.toolworld.words import Words


class Twitter(SceneWithLogin):
    class_name = "TwitterAPI"
    family = "twitter"
    login_tool = "authenticate_twitter"

    def __init__(self, words: Words, size: int, *, rich: bool = False) -> None:
        super().__init__(words, size, rich=rich)
        self._user, self._password = words.draw("account"), words.draw("password")
        self._logged_in = self.rng.random() < 0.6
        authors = [words.draw("account") for _ in range(max(2, size // 4))]
        start = words.identifier(3)
        self._tweets = {start + place: (authors[place % len(authors)], words.draw("sentence")) for place in range(size)}
        self._next = start + size
        self._following = [words.draw("account") for _ in range(size)]
        self._posted: int | None = None
        self._retweeted: set[int] = set()
        self._listed: tuple[str, ...] | None = None
        self._shown: str | None = None
        """Whom the user follows, and the author of a tweet, as they were shown last."""

    def start_config(self) -> Mapping[str, JSON]:
        tweets = {
            str(number): {"id": number, "username": author, "content": text, "tags": [], "mentions": []}
            for number, (author, text) in self._tweets.items()
        }
        return {
            "username": self._user,
            "password": self._password,
            "authenticated": self._logged_in,
            "tweets": tweets,
            "comments": {},
            "retweets": {},
            "following_list": list(self._following),
            "tweet_counter": self._next,
        }

    @property
    def intents(self) -> tuple[Intent, ...]:
        return (
            *(self.post, self.post_tagged, self.post_to, self.comment, self.comment_posted, self.retweet),
            *(self.retweet_author, self.mention, self.follow, self.unfollow, self.following, self.read),
            *(self.posts_of, self.search, self.stats, self.login),
        )

    @property
    def referring(self) -> tuple[Intent, ...]:
        return (
            *(self.post, self.post_tagged, self.following, self.read, self.retweet_author, self.comment_author),
            *(self.post_and_comment, self.post_and_mention, self.follow_author, self.stats_author),
            self.unfollow_first,
        )

    @property
    def recalling(self) -> tuple[Intent, ...]:
        return (
            *(self.comment_posted, self.mention_posted, self.unfollow_listed, self.follow_shown, self.posts_shown),
            self.retweet_posted,
        )

    def post(self) -> Beat:
        text = self.words.draw("sentence")
        return self.with_login("post", (call("post_tweet", content=text),), {"text": text}, self._post)

    def post_tagged(self) -> Beat:
        text, tag = self.words.draw("sentence"), f"#{self.words.draw('topic')}"
        calls = (call("post_tweet", content=text, tags=[tag]),)
        return self.with_login("post_tagged", calls, {"text": text, "tag": tag}, self._post)

    def post_to(self) -> Beat:
        text, name = self.words.draw("sentence"), f"@{self.words.draw('account')}"
        calls = (call("post_tweet", content=text, mentions=[name]),)
        return self.with_login("post_to", calls, {"text": text, "name": name}, self._post)

    def comment(self) -> Beat:
        number, text = self.rng.choice(list(self._tweets)), self.words.draw("sentence")
        calls = (call("comment", tweet_id=number, comment_content=text),)
        return self.with_login("comment", calls, {"tweet": str(number), "text": text})

    def comment_posted(self) -> Beat:
        number, text = known(self._posted), self.words.draw("sentence")
        calls = (call("comment", tweet_id=number, comment_content=text),)
        return self.with_login("comment_posted", calls, {"text": text})

    def retweet(self) -> Beat:
        numbers = [number for number in self._tweets if number not in self._retweeted]
        require(numbers)
        number = self.rng.choice(numbers)
        effect = partial(self._retweeted.add, number)
        return self.with_login("retweet", (call("retweet", tweet_id=number),), {"tweet": str(number)}, effect)

    def retweet_author(self) -> Beat:
        """The one post of an author: its id must be looked up."""
        authors = [author for author, _ in self._tweets.values()]
        numbers = [
            number
            for number, (author, _) in self._tweets.items()
            if number not in self._retweeted and authors.count(author) == 1
        ]
        require(numbers)
        number = self.rng.choice(numbers)
        author, _ = self._tweets[number]
        calls = (call("get_user_tweets", username=author), call("retweet", tweet_id=number))

        def effect() -> None:
            self._retweeted.add(number)
            self._show(None)

        return self.with_login("retweet_author", calls, {"author": author}, effect)

    def mention(self) -> Beat:
        number, name = self.rng.choice(list(self._tweets)), f"@{self.words.draw('account')}"
        calls = (call("mention", tweet_id=number, mentioned_usernames=[name]),)
        return Beat("twitter.mention", calls, {"tweet": str(number), "name": name})

    def mention_posted(self) -> Beat:
        number, name = known(self._posted), f"@{self.words.draw('account')}"
        calls = (call("mention", tweet_id=number, mentioned_usernames=[name]),)
        return Beat("twitter.mention_posted", calls, {"name": name}, reads=(str(number),))

    def post_and_comment(self) -> Beat:
        text, said, number = self.words.draw("sentence"), self.words.draw("sentence"), self._next
        calls = (call("post_tweet", content=text), call("comment", tweet_id=number, comment_content=said))
        slots = {"text": text, "reply": said}
        return self.with_login("post_and_comment", calls, slots, self._post, reads=(str(number),))

    def post_and_mention(self) -> Beat:
        text, name, number = self.words.draw("sentence"), f"@{self.words.draw('account')}", self._next
        calls = (call("post_tweet", content=text), call("mention", tweet_id=number, mentioned_usernames=[name]))
        slots = {"text": text, "name": name}
        return self.with_login("post_and_mention", calls, slots, self._post, reads=(str(number),))

    def comment_author(self) -> Beat:
        """Under the one post of an author, whose id must be looked up."""
        number, text = self._single(), self.words.draw("sentence")
        author, _ = self._tweets[number]
        calls = (call("get_user_tweets", username=author), call("comment", tweet_id=number, comment_content=text))
        slots = {"author": author, "text": text}
        effect = partial(self._show, None)
        return self.with_login("comment_author", calls, slots, effect, bulk=True, reads=(str(number),))

    def follow_author(self) -> Beat:
        """Whoever wrote a tweet."""
        number, (author, _) = self.rng.choice(list(self._tweets.items()))
        require(author not in self._following)
        calls = (call("get_tweet", tweet_id=number), call("follow_user", username_to_follow=author))

        def effect() -> None:
            self._show(number)
            self._following.append(author)

        return self.with_login("follow_author", calls, {"tweet": str(number)}, effect, reads=(author,))

    def stats_author(self) -> Beat:
        number, (author, _) = self.rng.choice(list(self._tweets.items()))
        calls = (call("get_tweet", tweet_id=number), call("get_user_stats", username=author))
        return Beat("twitter.stats_author", calls, {"tweet": str(number)}, partial(self._show, number), reads=(author,))

    def unfollow_first(self) -> Beat:
        require(self._following)
        user = self._following[0]
        calls = (call("list_all_following"), call("unfollow_user", username_to_unfollow=user))
        effect = partial(self._following.remove, user)
        return self.with_login("unfollow_first", calls, {}, effect, bulk=True, reads=(user,))

    def unfollow_listed(self) -> Beat:
        """The first user of the list that was shown."""
        require(self._following and self._listed == tuple(self._following))
        user = self._following[0]
        calls = (call("unfollow_user", username_to_unfollow=user),)
        effect = partial(self._following.remove, user)
        return self.with_login("unfollow_listed", calls, {}, effect, reads=(user,))

    def follow_shown(self) -> Beat:
        """Whoever wrote the tweet that was shown last."""
        author = known(self._shown)
        require(author not in self._following)
        calls = (call("follow_user", username_to_follow=author),)
        effect = partial(self._following.append, author)
        return self.with_login("follow_shown", calls, {}, effect, reads=(author,))

    def posts_shown(self) -> Beat:
        author = known(self._shown)
        calls = (call("get_user_tweets", username=author),)
        return Beat("twitter.posts_shown", calls, {}, bulk=True, reads=(author,))

    def retweet_posted(self) -> Beat:
        number = known(self._posted)
        require(number not in self._retweeted)
        calls = (call("retweet", tweet_id=number),)
        effect = partial(self._retweeted.add, number)
        return self.with_login("retweet_posted", calls, {}, effect, reads=(str(number),))

    def post_file(self, read: SceneReading) -> Beat:
        """The text of a file, posted."""
        calls = (*read.calls, call("post_tweet", content=read.value))
        return self.with_login("post_file", calls, read.slots, self._post, reads=(str(read.value),))

    def follow(self) -> Beat:
        user = self.words.draw("account")
        calls = (call("follow_user", username_to_follow=user),)
        return self.with_login("follow", calls, {"author": user}, lambda: self._following.append(user))

    def unfollow(self) -> Beat:
        require(self._following)
        user = self.words.pick(self._following)
        calls = (call("unfollow_user", username_to_unfollow=user),)
        return self.with_login("unfollow", calls, {"author": user}, lambda: self._following.remove(user))

    def following(self) -> Beat:
        return self.with_login("following", (call("list_all_following"),), {}, self._list, bulk=True)

    def read(self) -> Beat:
        number = self.rng.choice(list(self._tweets))
        effect = partial(self._show, number)
        return Beat("twitter.read", (call("get_tweet", tweet_id=number),), {"tweet": str(number)}, effect)

    def posts_of(self) -> Beat:
        author, _ = self.rng.choice(list(self._tweets.values()))
        calls = (call("get_user_tweets", username=author),)
        return Beat("twitter.posts_of", calls, {"author": author}, partial(self._show, None), bulk=True)

    def search(self) -> Beat:
        _, text = self.rng.choice(list(self._tweets.values()))
        word = self.rng.choice(text.split()[1:])
        calls = (call("search_tweets", keyword=word),)
        return Beat("twitter.search", calls, {"word": word}, partial(self._show, None))

    def stats(self) -> Beat:
        author, _ = self.rng.choice(list(self._tweets.values()))
        return Beat("twitter.stats", (call("get_user_stats", username=author),), {"author": author})

    def _list(self) -> None:
        self._listed = tuple(self._following)

    def _show(self, number: int | None) -> None:
        """This tweet was shown, or several."""
        self._shown = None if number is None else self._tweets[number][0]

    def _single(self) -> int:
        """A tweet of an author who wrote no other."""
        authors = [author for author, _ in self._tweets.values()]
        numbers = [number for number, (author, _) in self._tweets.items() if authors.count(author) == 1]
        require(numbers)
        return self.rng.choice(numbers)

    def _post(self) -> None:
        self._posted = self._next
        self._next += 1
        self._show(None)
