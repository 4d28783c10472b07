package notices

import (
	"fmt"
	"slices"
	"strings"
)

// licence is a licence by a sentence of its text.
type licence struct {
	// id is that of SPDX.
	id string
	// texts are parts of its text in lower case; any of them tells it.
	texts []string
	// fits says that programs under Apache-2.0 may contain what is under it.
	fits bool
}

// licences are those that are known. An unknown one is refused, so the list of those that do not fit has
// only what somebody may take for one that does: restrictions that are added to a permissive licence, and
// licences that are often met.
var licences = []licence{
	{"Apache-2.0", []string{"apache license version 2.0"}, true},
	{"MIT", []string{"permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation files"}, true},
	{bsd, []string{"redistribution and use in source and binary forms, with or without modification, are permitted"}, true},
	{"ISC", []string{"permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby granted"}, true},
	{mpl, []string{"mozilla public license version 2.0", "mozilla public license, version 2.0", "mozilla public license, v. 2.0"}, true},
	{"AGPL", []string{"gnu affero general public license"}, false},
	{"LGPL", []string{"gnu lesser general public license", "gnu library general public license"}, false},
	{"GPL", []string{"gnu general public license"}, false},
	{"SSPL-1.0", []string{"server side public license"}, false},
	{"BUSL-1.1", []string{"business source license"}, false},
	{"Elastic-2.0", []string{"elastic license"}, false},
	{"EPL", []string{"eclipse public license"}, false},
	{"CDDL", []string{"common development and distribution license"}, false},
	{"Commons Clause", []string{"commons clause"}, false},
	{"CC-BY-NC", []string{"attribution-noncommercial"}, false},
	{"CC-BY-SA", []string{"attribution-sharealike"}, false},
	{"JSON", []string{"the software shall be used for good, not evil"}, false},
}

// BSD licences differ by one clause. MPL-2.0 names GPL licences, under which its files may be passed on, too.
const bsd, mpl = "BSD", "MPL-2.0"

// classify returns the licences that a text grants, sorted. It refuses those that do not fit Apache-2.0, and
// a text of which it knows none.
func classify(text string) ([]string, error) {
	text = strings.Join(strings.Fields(strings.ToLower(text)), " ")
	var found []string
	for _, l := range licences {
		if !slices.ContainsFunc(l.texts, func(part string) bool { return strings.Contains(text, part) }) {
			continue
		}
		if !l.fits {
			if strings.Contains(l.id, "GPL") && slices.Contains(found, mpl) {
				continue
			}
			return nil, fmt.Errorf("its licence %s does not fit Apache-2.0: do without it", l.id)
		}
		if l.id == bsd {
			l.id = "BSD-2-Clause"
			if strings.Contains(text, "neither the name") || strings.Contains(text, "names of its contributors") {
				l.id = "BSD-3-Clause"
			}
		}
		found = append(found, l.id)
	}
	if found == nil {
		return nil, fmt.Errorf("no known licence: read it, and add it to release/internal/notices/licence.go")
	}
	slices.Sort(found)
	return found, nil
}
