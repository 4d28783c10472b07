package text_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/tranche-dev/tranche/pkg/text"
)

func TestClause(t *testing.T) {
	assert.Equal(t, "a is gone. B is gone. C is not.", text.Clause([]string{"a is gone.", "b is gone.", "C is not."}))
}

func TestList(t *testing.T) {
	assert.Empty(t, text.List(nil, 2))
	assert.Equal(t, "a, b", text.List([]string{"a", "b"}, 2))
	assert.Equal(t, "a, b and 1 more", text.List([]string{"a", "b", "c"}, 2))
}

func TestCut(t *testing.T) {
	assert.Equal(t, "abcdef", text.Cut("abcdef", 6))
	assert.Equal(t, "abc...", text.Cut("abcdefg", 6))
	assert.Equal(t, "aä...", text.Cut("aäöü", 6))
	assert.Equal(t, "a...", text.Cut("aäöü", 5), "not within a character")
}

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 80 << 30: "80 GiB", 85520809984: "79.6 GiB", 1 << 40: "1 TiB", 3 << 60: "3072 PiB"} {
		assert.Equal(t, want, text.Bytes(n))
	}
}

func TestClock(t *testing.T) {
	assert.Equal(t, "14:05:00 UTC", text.Clock(time.Date(2026, 11, 21, 15, 5, 0, 0, time.FixedZone("CET", 3600))))
}

func TestCapital(t *testing.T) {
	assert.Empty(t, text.Capital(""))
	assert.Equal(t, "A pod", text.Capital("a pod"))
}

func TestNote(t *testing.T) {
	assert.Equal(t, "short", text.Note("short"))
	assert.Len(t, text.Note(strings.Repeat("a", 2000)), 1024)
}

func TestSentences(t *testing.T) {
	assert.Empty(t, text.Sentences(nil))
	assert.Equal(t, []string{"A is missing; b is missing (away).", "Nobody answers."}, text.Sentences([]text.Unread{
		{Message: "away.", Consequence: "a is missing"}, {Message: "nobody answers"}, {Message: "away", Consequence: "b is missing"},
		{Message: "away", Consequence: "b is missing"},
	}))
	forbidden := func(verb, resource, so string) text.Unread {
		return text.Unread{Verb: verb, Resource: resource, Consequence: so}.Refused()
	}
	assert.Equal(t, []string{"A is missing (you are not allowed to list a)."}, text.Sentences([]text.Unread{forbidden("list", "a", "a is missing")}))
	assert.Equal(t, []string{"A is missing; b is missing; c is missing (you are not allowed to list a, b or to get c).", "D is missing (away)."}, text.Sentences([]text.Unread{
		forbidden("list", "a", "a is missing"), forbidden("list", "b", "b is missing"), forbidden("get", "c", "c is missing"), forbidden("list", "a", "a is missing"),
		{Verb: "list", Resource: "d", Message: "away", Consequence: "d is missing"},
	}))
	assert.Equal(t, []string{"A is missing (you are not allowed to list a).", "B is missing (you are not allowed to list b.example)."}, text.Sentences([]text.Unread{
		{Verb: "list", Resource: "a.example", Message: "you are not allowed to list a", Consequence: "a is missing"}, forbidden("list", "b.example", "b is missing"),
	}))
}

func TestProfile(t *testing.T) {
	assert.Equal(t, "no profile", text.Profile(""))
	assert.Equal(t, "profile cpx", text.Profile("cpx"))
}

func TestCount(t *testing.T) {
	for want, got := range map[string]string{
		"0 nodes": text.Count(0, "node"), "1 node": text.Count(1, "node"), "2 nodes": text.Count(2, "node"),
		"1 switch": text.Count(1, "switch"), "2 switches": text.Count(2, "switch"), "3 classes": text.Count(3, "class"),
	} {
		assert.Equal(t, want, got)
	}
}

func TestCutToNothing(t *testing.T) {
	assert.Empty(t, text.Cut("abcdef", 3))
	assert.Equal(t, "a...", text.Cut("abcdef", 4))
}
