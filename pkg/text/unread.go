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
	// Consequence is what is therefore missing or not known, as part of a sentence.
	Consequence string `json:"consequence,omitempty"`
}

// Sentences say what could not be read and what follows, one for all with the same message.
func Sentences(all []Unread) (sentences []string) {
	var messages []string
	consequences := map[string][]string{}
	for _, u := range all {
		message := strings.TrimSuffix(u.Message, ".")
		if !slices.Contains(messages, message) {
			messages = append(messages, message)
		}
		if u.Consequence != "" && !slices.Contains(consequences[message], u.Consequence) {
			consequences[message] = append(consequences[message], u.Consequence)
		}
	}
	for _, message := range messages {
		if so := consequences[message]; len(so) > 0 {
			message = fmt.Sprintf("%s (%s)", strings.Join(so, "; "), message)
		}
		sentences = append(sentences, Capital(message)+".")
	}
	return sentences
}
