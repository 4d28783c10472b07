package image

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// nameFormat is what remains to be checked of a complete name: lower-case
// parts and a tag.
var nameFormat = regexp.MustCompile(`^[a-zA-Z0-9.-]+(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+:[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)

func completeNames(names []string) ([]string, error) {
	if len(names) == 0 {
		return nil, errors.New("an image needs at least one tag, such as example.com/name:v1")
	}
	complete := make([]string, 0, len(names))
	for _, name := range names {
		full := completeName(name)
		if !nameFormat.MatchString(full) {
			return nil, fmt.Errorf("tag %q is no image name: it must look like example.com/name:v1, the name in lower case", name)
		}
		complete = append(complete, full)
	}
	return complete, nil
}

// completeName writes out what a short image name leaves out, as Docker and
// the kubelet do: registry docker.io, folder library, tag latest.
func completeName(name string) string {
	first, rest, found := strings.Cut(name, "/")
	isRegistry := found && (strings.ContainsAny(first, ".:") || first == "localhost")
	switch {
	case !found:
		name = "docker.io/library/" + name
	case !isRegistry:
		name = "docker.io/" + name
	case first == "docker.io" && !strings.Contains(rest, "/"):
		name = "docker.io/library/" + rest
	}
	if !strings.Contains(name[strings.LastIndex(name, "/"):], ":") {
		name += ":latest"
	}
	return name
}
