/** Every table of the dashboard: a filter, columns that sort, pages, and what is shown as a file. */
import { Button, Card, Group, Pagination, Table, Text, TextInput, UnstyledButton } from "@mantine/core";
import { IconArrowDown, IconArrowsSort, IconArrowUp, IconDownload, IconSearch } from "@tabler/icons-react";
import {
  type ColumnDef,
  getCoreRowModel,
  getFilteredRowModel,
  getPaginationRowModel,
  getSortedRowModel,
  type Header,
  type Row as TableRow,
  type SortingState,
  useReactTable,
} from "@tanstack/react-table";
import { memo, type ReactNode, useDeferredValue, useMemo, useState } from "react";

import { download, toCsv } from "./csv";

export interface Column<Row> {
  id: string;
  header: string;
  /** What it sorts, filters and exports by; null: not known. */
  value: (row: Row) => string | number | null;
  /** What is shown, where that is more than the value. */
  cell?: (row: Row) => ReactNode;
  align?: "right";
}

interface Props<Row> {
  /** Name of the table, above it and of its file. */
  label: string;
  rows: Row[];
  columns: Column<Row>[];
  rowKey: (row: Row) => string;
  rowTestId?: (row: Row) => string;
  /** Column and direction to begin with. */
  sort?: { id: string; desc: boolean };
  minWidth?: number;
  /** What stands in the table when there is no row at all. */
  empty?: string;
  note?: ReactNode;
}

const PAGE = 25;
const SORT_NAMES = { asc: "ascending", desc: "descending" } as const;

export function DataTable<Row>(props: Props<Row>) {
  const { label, rows, columns, rowKey, rowTestId, sort, minWidth = 760, empty, note } = props;
  const [filter, setFilter] = useState("");
  const [sorting, setSorting] = useState<SortingState>(sort ? [sort] : []);
  // A long table follows what is typed and chosen when there is time for it: the field itself does not wait.
  const wanted = useDeferredValue(filter);
  const ordered = useDeferredValue(sorting);
  const definitions = useMemo<ColumnDef<Row, string | number | null>[]>(
    () =>
      columns.map((column) => ({
        id: column.id,
        header: column.header,
        // What is not known comes last, whichever way it is sorted.
        accessorFn: (row: Row) => column.value(row) ?? undefined,
        sortUndefined: "last",
        sortingFn: "auto",
      })),
    [columns],
  );
  // eslint-disable-next-line react-hooks/incompatible-library -- the compiler is not used here
  const table = useReactTable<Row>({
    data: rows,
    columns: definitions,
    state: { sorting: ordered, globalFilter: wanted },
    onSortingChange: setSorting,
    globalFilterFn: (row, id, words: string) => {
      const value = row.getValue<string | number | undefined>(id);
      return value !== undefined && String(value).toLowerCase().includes(words.toLowerCase());
    },
    getColumnCanGlobalFilter: () => true,
    getRowId: rowKey,
    autoResetPageIndex: false,
    initialState: { pagination: { pageSize: PAGE, pageIndex: 0 } },
    getCoreRowModel: getCoreRowModel(),
    getFilteredRowModel: getFilteredRowModel(),
    getSortedRowModel: getSortedRowModel(),
    getPaginationRowModel: getPaginationRowModel(),
  });
  const found = table.getFilteredRowModel().rows.length;
  const pages = table.getPageCount();
  const page = Math.min(table.getState().pagination.pageIndex, Math.max(pages - 1, 0));
  const save = () => {
    const shown = table.getSortedRowModel().rows.map((row) => columns.map((one) => one.value(row.original)));
    const name = `chart-${label.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-")}.csv`;
    download(
      name,
      toCsv(
        columns.map((one) => one.header),
        shown,
      ),
    );
  };
  return (
    <Card withBorder component="section" aria-label={label}>
      <Group justify="space-between" mb="xs" gap="xs">
        <Text size="sm" fw={600}>
          {label}
          <Text span size="sm" c="dimmed" fw={400}>
            {" "}
            {found === rows.length ? rows.length : `${found} of ${rows.length}`}
            {note ? <>; {note}</> : null}
          </Text>
        </Text>
        <Group gap="xs">
          <TextInput
            size="xs"
            w={180}
            aria-label={`Filter ${label}`}
            placeholder="Filter"
            leftSection={<IconSearch size={14} aria-hidden />}
            value={filter}
            onChange={(event) => {
              setFilter(event.currentTarget.value);
              // Even a change to the same page has every row drawn anew.
              if (page > 0) table.setPageIndex(0);
            }}
          />
          <Button
            size="xs"
            variant="default"
            leftSection={<IconDownload size={14} aria-hidden />}
            onClick={save}
            aria-label={`Export ${label} as CSV`}
          >
            CSV
          </Button>
        </Group>
      </Group>
      {/* Its bar is there whenever the table is wider than the card: nobody looks for columns that they do not see. */}
      <Table.ScrollContainer
        minWidth={minWidth}
        scrollAreaProps={{ type: "auto", offsetScrollbars: "x", viewportProps: { tabIndex: 0 } }}
      >
        <Table highlightOnHover aria-label={label}>
          <Table.Thead>
            <Table.Tr>
              {table.getFlatHeaders().map((header, index) => (
                <SortHeader key={header.id} header={header} align={columns[index]?.align} />
              ))}
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            <Rows rows={table.getRowModel().rows} columns={columns} {...(rowTestId ? { rowTestId } : {})} />
            {found === 0 ? (
              <Table.Tr>
                <Table.Td colSpan={columns.length}>
                  <Text size="sm" ta="center" py="md">
                    {rows.length === 0 ? (empty ?? "Nothing to show.") : `Nothing matches “${wanted}”.`}
                  </Text>
                </Table.Td>
              </Table.Tr>
            ) : null}
          </Table.Tbody>
        </Table>
      </Table.ScrollContainer>
      {pages > 1 ? (
        <Pagination
          mt="sm"
          size="sm"
          total={pages}
          value={page + 1}
          onChange={(wanted) => {
            table.setPageIndex(wanted - 1);
          }}
          getItemProps={(number) => ({ "aria-label": `${label}, page ${number}` })}
          getControlProps={(control) => ({ "aria-label": `${label}, ${control} page` })}
        />
      ) : null}
    </Card>
  );
}

interface RowsProps<Row> {
  rows: TableRow<Row>[];
  columns: Column<Row>[];
  rowTestId?: (row: Row) => string;
}

/** The rows of a page; drawn anew only when they or their columns are others. */
const Rows = memo(function Rows<Row>({ rows, columns, rowTestId }: RowsProps<Row>) {
  return rows.map((row) => (
    <Table.Tr key={row.id} data-testid={rowTestId?.(row.original)}>
      {columns.map((column, index) => (
        <Cell key={column.id} column={column} row={row.original} first={index === 0} />
      ))}
    </Table.Tr>
  ));
}) as <Row>(props: RowsProps<Row>) => ReactNode;

function Cell<Row>({ column, row, first }: { column: Column<Row>; row: Row; first: boolean }) {
  const shown = column.cell ? column.cell(row) : (column.value(row) ?? "–");
  if (first) return <Table.Th scope="row">{shown}</Table.Th>;
  const style = column.align ? { whiteSpace: "nowrap" as const } : undefined;
  return (
    <Table.Td ta={column.align} style={style}>
      {shown}
    </Table.Td>
  );
}

function SortHeader<Row>({ header, align }: { header: Header<Row, unknown>; align?: "right" | undefined }) {
  const sorted = header.column.getIsSorted();
  const Icon = sorted === "asc" ? IconArrowUp : sorted === "desc" ? IconArrowDown : IconArrowsSort;
  return (
    <Table.Th scope="col" ta={align} aria-sort={sorted ? SORT_NAMES[sorted] : "none"}>
      <UnstyledButton
        onClick={header.column.getToggleSortingHandler()}
        fz="sm"
        fw={600}
        mih={24}
        ta={align ?? "left"}
      >
        {String(header.column.columnDef.header)}{" "}
        <Icon size={12} aria-hidden opacity={sorted ? 1 : 0.35} style={{ verticalAlign: "middle" }} />
      </UnstyledButton>
    </Table.Th>
  );
}
