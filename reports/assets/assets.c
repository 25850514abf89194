/* SPDX-License-Identifier: Apache-2.0 */
#include "assets.h"

/* Includes a file by the assembler. The build passes the folders of the files. */
#define ASSET(name, ...)                                                                                     \
	__asm__(".section .rodata, \"a\"\n"                                                                  \
		".global diesel_asset_" #name "\n"                                                           \
		"diesel_asset_" #name ":\n" __VA_ARGS__ ".global diesel_asset_" #name "_end\n"               \
		"diesel_asset_" #name "_end:\n"                                                              \
		".previous\n");                                                                              \
	extern const char diesel_asset_##name[], diesel_asset_##name##_end[]

#define FILE_IN(folder, file) ".incbin \"" folder "/" file "\"\n"

ASSET(page, FILE_IN(PAGE_FOLDER, "page.html"));
ASSET(style, FILE_IN(PAGE_FOLDER, "page.css"));
ASSET(script, FILE_IN(PAGE_FOLDER, "page.js") FILE_IN(PAGE_FOLDER, "paint.js")
		  FILE_IN(PAGE_FOLDER, "timeline.js") FILE_IN(PAGE_FOLDER, "charts.js"));
ASSET(schema, FILE_IN(DOCS_FOLDER, "report.schema.json"));

#define FOUND(name)                                                                                          \
	((struct asset){diesel_asset_##name, (size_t)(diesel_asset_##name##_end - diesel_asset_##name)})

struct asset asset_page(void)
{
	return FOUND(page);
}

struct asset asset_style(void)
{
	return FOUND(style);
}

struct asset asset_script(void)
{
	return FOUND(script);
}

struct asset asset_schema(void)
{
	return FOUND(schema);
}
