package notices

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// FileName is the name that the written file has in images and archives.
const FileName = "THIRD-PARTY-NOTICES"

// introduction names what Go modules do not: the C library in programs that are linked statically.
const introduction = `Third-party notices

Tranche is licensed under the Apache License, Version 2.0. Its programs contain the modules below, each under
its own licence. The sources of each are at https://proxy.golang.org/MODULE/@v/VERSION.zip, those of Go at
https://go.dev/dl.

nvidia-cdi-hook and simulated-driver also contain parts of the GNU C Library (LGPL-2.1-or-later) and of libgcc
(GPL-3.0-or-later with the GCC Runtime Library Exception) of Debian 12, linked statically. Their sources are
at https://sources.debian.org/src/glibc and https://sources.debian.org/src/gcc-12, their licences in
/usr/share/doc and /usr/share/common-licenses of the images. To link them with another version of the library, build them with
"make build simulated-driver" from the sources of Tranche, https://github.com/tranche-dev/tranche.
`

const rule = "--------------------------------------------------------------------------------"

// Write writes a table of modules, and each text once, with the modules that it is of. Equal modules give
// equal bytes.
func Write(w io.Writer, modules []Module) error {
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "%s\n%s\n", introduction, rule)
	var texts []string
	of := map[string][]string{}
	for _, m := range modules {
		fmt.Fprintf(out, "%s %s: %s\n", m.Path, m.Version, strings.Join(m.Licences, ", "))
		for _, file := range m.Files {
			if of[file.Text] == nil {
				texts = append(texts, file.Text)
			}
			of[file.Text] = append(of[file.Text], fmt.Sprintf("%s %s, %s", m.Path, m.Version, file.Name))
		}
	}
	for _, text := range texts {
		fmt.Fprintf(out, "\n%s\n%s\n\n%s\n", rule, strings.Join(of[text], "\n"), strings.TrimSpace(text))
	}
	return out.Flush()
}
