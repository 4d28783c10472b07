package text

import (
	"fmt"
	"slices"
	"strings"
)

// Unread is what a program could not read, in all documents that programs print.
type Unread struct {
	// Verb and Resource are the right that it takes, as in roles, with the group after a dot: "list" and
	// "resourceclaims.resource.k8s.io", "get" and "pods/proxy". They are empty if no object of Kubernetes
	// was to be read.
	Verb     string `json:"verb,omitempty"`
	Resource string `json:"resource,omitempty"`
	// Namespace is the one whose objects were to be read, empty for those of the cluster.
	Namespace string `json:"namespace,omitempty"`
	// Message is the reason, as part of a sentence: "you are not allowed to list nodes".
	Message string `json:"message"`
	// Denied: the API server refused it, because this right is missing.
	Denied bool `json:"denied,omitempty"`
	// Consequence is what is therefore missing or not known, as part of a sentence.
	Consequence string `json:"consequence,omitempty"`
}

const notAllowed = "you are not allowed to "

// Refused returns u for the reason that the right is missing.
func (u Unread) Refused() Unread {
	u.Message, u.Denied = notAllowed+u.Verb+" "+u.Resource, true
	return u
}

// Sentences say what could not be read and what follows, one for all with the same message, and one for all rights
// that are missing.
func Sentences(all []Unread) (sentences []string) {
	var messages, verbs []string
	consequences, denied := map[string][]string{}, map[string][]string{}
	add := func(to map[string][]string, key, text string) (first bool) {
		before, known := to[key]
		if text != "" && !slices.Contains(before, text) {
			before = append(before, text)
		}
		to[key] = before
		return !known
	}
	for _, u := range all {
		message := strings.TrimSuffix(u.Message, ".")
		if u.Denied {
			message = "" // one for all
			if add(denied, u.Verb, u.Resource) {
				verbs = append(verbs, u.Verb)
			}
		}
		if add(consequences, message, u.Consequence) {
			messages = append(messages, message)
		}
	}
	for _, message := range messages {
		so := consequences[message]
		if message == "" {
			var rights []string
			for _, verb := range verbs {
				rights = append(rights, verb+" "+strings.Join(denied[verb], ", "))
			}
			message = notAllowed + strings.Join(rights, " or to ")
		}
		if len(so) > 0 {
			message = fmt.Sprintf("%s (%s)", strings.Join(so, "; "), message)
		}
		sentences = append(sentences, Capital(message)+".")
	}
	return sentences
}
