package nvfiles

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
)

// sharedObject makes the smallest ELF library that has a name: no code, only
// the dynamic section that ldconfig and nvcdi read to link libcuda.so.1 to it.
func sharedObject(soname string) string {
	const (
		headers   = 64 + 2*56 // file header, two program headers
		dynEntry  = 16
		dynCount  = 4
		tableSize = 64 // a section header
	)
	names := "\x00" + soname + "\x00"
	for len(names)%8 != 0 {
		names += "\x00"
	}
	stringsAt := uint64(headers)
	dynamicAt := stringsAt + uint64(len(names))
	sectionsAt := dynamicAt + dynCount*dynEntry
	size := sectionsAt + 3*tableSize

	var b bytes.Buffer
	put := func(v any) { _ = binary.Write(&b, binary.LittleEndian, v) } // a buffer takes everything
	ident := [elf.EI_NIDENT]byte{
		0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT),
	}
	put(elf.Header64{
		Ident: ident, Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
		Phoff: 64, Shoff: sectionsAt, Ehsize: 64, Phentsize: 56, Phnum: 2, Shentsize: tableSize, Shnum: 3, Shstrndx: 1,
	})
	put(elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R), Filesz: size, Memsz: size, Align: 0x1000})
	put(elf.Prog64{
		Type: uint32(elf.PT_DYNAMIC), Flags: uint32(elf.PF_R), Off: dynamicAt, Vaddr: dynamicAt, Paddr: dynamicAt,
		Filesz: dynCount * dynEntry, Memsz: dynCount * dynEntry, Align: 8,
	})
	b.WriteString(names)
	put([]elf.Dyn64{
		{Tag: int64(elf.DT_SONAME), Val: 1},
		{Tag: int64(elf.DT_STRTAB), Val: stringsAt},
		{Tag: int64(elf.DT_STRSZ), Val: uint64(len(names))},
		{Tag: int64(elf.DT_NULL)},
	})
	put(elf.Section64{})
	put(elf.Section64{Type: uint32(elf.SHT_STRTAB), Flags: uint64(elf.SHF_ALLOC), Addr: stringsAt, Off: stringsAt, Size: uint64(len(names)), Addralign: 1})
	put(elf.Section64{
		Type: uint32(elf.SHT_DYNAMIC), Flags: uint64(elf.SHF_ALLOC), Addr: dynamicAt, Off: dynamicAt,
		Size: dynCount * dynEntry, Link: 1, Addralign: 8, Entsize: dynEntry,
	})
	return b.String()
}
