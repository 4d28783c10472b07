package text

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// List returns up to most names and the number of others: "a, b and 3 more".
func List(all []string, most int) string {
	if len(all) <= most {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
}

// Count returns a number with a noun: "1 node", "3 nodes", "2 switches".
func Count(n int, what string) string {
	switch {
	case n == 1:
		return "1 " + what
	case strings.HasSuffix(what, "ch"), strings.HasSuffix(what, "ss"):
		what += "e"
	}
	return fmt.Sprintf("%d %ss", n, what)
}

const ellipsis = "..."

// Cut truncates a text to at most most bytes, without splitting a character.
func Cut(text string, most int) string {
	switch {
	case len(text) <= most:
		return text
	case most <= len(ellipsis):
		return ""
	}
	return strings.ToValidUTF8(text[:most-len(ellipsis)], "") + ellipsis
}

// maxNote is the maximum length of an event's note that the API server accepts, in bytes
// (k8s.io/kubernetes/pkg/apis/core/validation/events.go).
const maxNote = 1024

// Note truncates a text to the maximum length of an event's note.
func Note(text string) string { return Cut(text, maxNote) }

// Clock returns the time of day: "15:04:05 UTC".
func Clock(t time.Time) string { return t.UTC().Format("15:04:05 UTC") }

// Bytes returns an amount of memory in the largest unit that does not exceed it: "79.6 GiB".
func Bytes(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	value, unit := float64(n), 0
	for value >= 1024 && unit < len(units)-1 {
		value, unit = value/1024, unit+1
	}
	return strconv.FormatFloat(math.Round(value*10)/10, 'f', -1, 64) + " " + units[unit]
}

// Capital returns a text with its first letter in upper case. The letter must be ASCII.
func Capital(text string) string {
	if text == "" {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// Clause joins sentences after the beginning of the first one, which the others do not continue.
func Clause(sentences []string) string {
	out := ""
	for i, s := range sentences {
		if i > 0 {
			s = " " + Capital(s)
		}
		out += s
	}
	return out
}

// Profile describes a profile: "profile cpx", "no profile".
func Profile(name string) string {
	if name == "" {
		return "no profile"
	}
	return "profile " + name
}
