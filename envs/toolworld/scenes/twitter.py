"""The social network: posts, comments, people to follow; writing needs a login."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from envs.task import JSON
from envs.toolworld.scene import Beat, Intent, SceneWithLogin, call, known, require
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
        return self.with_login("retweet_author", calls, {"author": author}, lambda: self._retweeted.add(number))

    def mention(self) -> Beat:
        number, name = self.rng.choice(list(self._tweets)), f"@{self.words.draw('account')}"
        calls = (call("mention", tweet_id=number, mentioned_usernames=[name]),)
        return Beat("twitter.mention", calls, {"tweet": str(number), "name": name})

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
        return self.with_login("following", (call("list_all_following"),), {}, bulk=True)

    def read(self) -> Beat:
        number = self.rng.choice(list(self._tweets))
        return Beat("twitter.read", (call("get_tweet", tweet_id=number),), {"tweet": str(number)})

    def posts_of(self) -> Beat:
        author, _ = self.rng.choice(list(self._tweets.values()))
        calls = (call("get_user_tweets", username=author),)
        return Beat("twitter.posts_of", calls, {"author": author}, bulk=True)

    def search(self) -> Beat:
        _, text = self.rng.choice(list(self._tweets.values()))
        word = self.rng.choice(text.split()[1:])
        return Beat("twitter.search", (call("search_tweets", keyword=word),), {"word": word})

    def stats(self) -> Beat:
        author, _ = self.rng.choice(list(self._tweets.values()))
        return Beat("twitter.stats", (call("get_user_stats", username=author),), {"author": author})

    def _post(self) -> None:
        self._posted = self._next
        self._next += 1
